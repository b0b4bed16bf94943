"""`.bin` files of PyTorch give their numbers to the bit; what is not a tensor is refused."""

import io
import os
import pathlib
import pickle
import random
import zipfile

import ml_dtypes
import numpy as np
import pytest

from keras_attn.convert.hugging_face.tensor_files import list_tensors

GOLDEN = pathlib.Path(__file__).with_name("golden_pickles")
FORMATS = ("legacy", "zip")
FLOATS = ("float64", "float32", "float16", ml_dtypes.bfloat16)
OTHERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
NUMBERS = np.arange(35.0).reshape(5, 7) / 8 - 2  # as in make_pickles.py
FILE = "pytorch_model.bin"


def list_bytes(folder, content):
    folder.joinpath(FILE).write_bytes(content)
    return list_tensors(folder)


def golden(name):
    return (GOLDEN / f"{name}.bin").read_bytes()


def expected():
    tensors = {"parameter": NUMBERS + 1, "buffer": NUMBERS + 2}
    for dtype in map(np.dtype, FLOATS):
        value = NUMBERS.astype(dtype)
        tensors |= {
            f"{dtype}.whole": value,
            f"{dtype}.transposed": value.T,
            f"{dtype}.part": value[1:4, 1::2],
            f"{dtype}.expanded": np.tile(value[:1], (3, 1)),
            f"{dtype}.empty": value[:0],
            f"{dtype}.scalar": value[3, 2],
        }
    return tensors


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_equal_to_the_bit(name, tmp_path):
    tensors, wanted = list_bytes(tmp_path, golden(name)), expected()
    assert tensors.keys() == wanted.keys() | set(OTHERS)
    for key, value in wanted.items():
        shape, read = tensors[key]
        tensor = read()
        assert shape == tensor.shape == value.shape and tensor.dtype == np.float32, key
        np.testing.assert_array_equal(tensor, value.astype("float32"), err_msg=key)
    for key in OTHERS:
        assert tensors[key][0] == NUMBERS.shape
        with pytest.raises(ValueError, match=f"'{key}' is of dtype {key}: weights in float64, .*"):
            tensors[key][1]()


def legacy(count=6, view="N", offset=0, size="I2\nI2\n", stride="I3\nI1\n", more=""):
    """A legacy file with one tensor "a" of the numbers 0 to 5, in the first protocol of pickles."""
    storage = f"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI{count}\n{view}tQ"
    tensor = f"ctorch._utils\n_rebuild_tensor_v2\n({storage}I{offset}\n({size}t({stride}ttR"
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    body = f"(dS'a'\n{tensor}s{more}.".encode()
    data = np.arange(6, dtype="<f4").tobytes()
    keys = pickle.dumps(["0"]) + (6).to_bytes(8, "little")
    return b"".join(map(pickle.dumps, parts)) + body + keys + data


@pytest.mark.parametrize(
    "options, tensor",
    [
        ({}, [[0, 1], [3, 4]]),
        ({"offset": 1, "stride": "I1\nI3\n"}, [[1, 4], [2, 5]]),
        ({"view": "(S'v'\nI2\nI4\nt", "stride": "I2\nI1\n"}, [[2, 3], [4, 5]]),
    ],
)
def test_views_are_read_where_they_begin(options, tensor, tmp_path):
    ((_, read),) = list_bytes(tmp_path, legacy(**options)).values()
    np.testing.assert_array_equal(read(), tensor)


def archive(change=lambda name, content: content, compression=zipfile.ZIP_STORED):
    """The golden archive with other contents."""
    target = io.BytesIO()
    with zipfile.ZipFile(GOLDEN / "zip.bin") as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)), compression)
    return target.getvalue()


def test_numbers_of_the_other_byte_order_are_equal(tmp_path):
    def swap(name, content):
        if name.endswith("byteorder"):
            return b"big"
        # The storages of the first dtype are those of keys 0 to 5.
        return content[::-1] if name.endswith("data/0") else content

    tensors = list_bytes(tmp_path, archive(swap))
    np.testing.assert_array_equal(tensors["float64.whole"][1](), NUMBERS[::-1, ::-1])


class Code:
    """An object whose pickle makes a directory when it is loaded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_code_is_refused_by_name_and_does_not_run(tmp_path):
    code = pickle.dumps(Code(tmp_path / "ran"), 0)
    beside = legacy(more=f"S'b'\n{code.decode()[:-1]}s")
    inside = archive(lambda name, content: code if name.endswith(".pkl") else content)
    for content in (code, beside, inside):
        with pytest.raises(ValueError, match=r"holds \w+\.mkdir, where only tensors"):
            list_bytes(tmp_path, content)
    assert not (tmp_path / "ran").exists()
    pickle.loads(code)  # elsewhere it runs
    assert (tmp_path / "ran").exists()


DAMAGES = {
    "nothing": lambda: b"",
    "text": lambda: b"<!DOCTYPE html>\n",
    "a list": lambda: pickle.dumps([1]),
    "numbers cut": lambda: legacy()[:-1],
    "an archive cut": lambda: golden("zip")[:-40],
    "an archive compressed": lambda: archive(compression=zipfile.ZIP_DEFLATED),
    "an archive without numbers": lambda: archive(
        lambda name, content: b"" if "/data/" in name else content
    ),
    "no dict": lambda: legacy(more="0I3\n"),
    "a number among tensors": lambda: legacy(more="S'b'\nI3\ns"),
    "more numbers than the file": lambda: legacy(count=2**50),
    "less numbers than the file": lambda: legacy(count=5),
    "a tensor beyond its storage": lambda: legacy(offset=2),
    "a tensor before its storage": lambda: legacy(offset=-1),
    "a step back": lambda: legacy(stride="I-1\nI1\n"),
    "a view beyond its storage": lambda: legacy(view="(S'v'\nI3\nI4\nt"),
    "steps less than sizes": lambda: legacy(stride="I1\n"),
    "a size of no integer": lambda: legacy(size="I2\nF2.0\n"),
    "a memory of 16 GB": lambda: legacy(more="p2000000000\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_in_one_sentence(damage, tmp_path):
    with pytest.raises(ValueError, match="'pytorch_model.bin' is cut or damaged, or holds no dict"):
        list_bytes(tmp_path, DAMAGES[damage]())


def test_a_wrong_checksum_names_the_tensor(tmp_path):
    content = bytearray(golden("zip"))
    content[content.index(NUMBERS.astype("float64").tobytes()) + 3] ^= 1
    tensors = list_bytes(tmp_path, content)
    with pytest.raises(ValueError, match="damaged in the tensor 'float64.whole': copy it again"):
        tensors["float64.whole"][1]()


def test_shards_hold_the_tensors_of_their_index(tmp_path):
    shards = {"pytorch_model-1.bin": b"a", "pytorch_model-2.bin": b"b"}
    for file, name in shards.items():
        (tmp_path / file).write_bytes(legacy().replace(b"S'a'", b"S'%c'" % name))
    index = '{"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}}'
    (tmp_path / f"{FILE}.index.json").write_text(index)
    for _, read in list_tensors(tmp_path).values():
        np.testing.assert_array_equal(read(), [[0, 1], [3, 4]])
    (tmp_path / f"{FILE}.index.json").write_text(index.replace('"b"', '"c"'))
    with pytest.raises(ValueError, match="disagree: only the file has the tensor 'b'"):
        list_tensors(tmp_path)


@pytest.mark.filterwarnings("ignore:.* encountered in cast")
def test_bytes_damaged_at_random_raise_nothing_but_sentences(tmp_path):
    chance, refused = random.Random(0), 0
    for index in range(60):
        content = bytearray(golden(FORMATS[index % 2]))
        place = chance.randrange(len(content))
        before, byte, after = content[:place], content[place], content[place + 1 :]
        damaged = (
            before,
            before + after,
            before + chance.randbytes(5) + after,
            before + bytes([byte ^ 1 << chance.randrange(8)]) + after,
            before + b"\xff" * 4 + after[3:],
        )[index // 2 % 5]
        try:
            tensors = list_bytes(tmp_path, damaged)
            for shape, read in (tensors[name] for name in tensors.keys() & expected()):
                assert np.prod(shape) > 1e6 or read().shape == shape
        except ValueError as error:
            refused += 1
            sentence, _, received = str(error).partition(" Received: ")
            assert received.startswith("folder=") and "\n" not in sentence
    assert 30 < refused < 60  # numbers of the legacy format may change unseen
