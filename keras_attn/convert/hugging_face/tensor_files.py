"""Files of a checkpoint: tensors read and written one at a time, and JSON."""

import functools
import json
import math
import os
import pathlib

import numpy as np

from keras_attn.convert.hugging_face.pickled_tensors import list_pickled_tensors

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
_POINTER = b"version https://git-lfs"
_BYTES = 4  # of a float32, in which all tensors are written
_DTYPES = {"BF16": "bfloat16", "F16": "<f2", "F32": "<f4", "F64": "<f8"}  # of weights that are read
_BYTE_TENSORS = ("_blocks", "_scales")  # endings of the names of MXFP4's


def refuse(problem, folder):
    """Raise the `ValueError` of a folder that cannot be converted."""
    raise ValueError(f"{problem} Received: folder={os.fspath(folder)!r}.")


def read_json(folder, name, kind=dict):
    """Return the content of a JSON file of a folder: a dict, or a list if that is the `kind`."""
    path = pathlib.Path(folder, name)
    if not path.is_file():
        refuse(f"The folder has no file {name!r}: copy it from the checkpoint.", folder)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # of JSON or of UTF-8, or lists in lists without end
        values = None
    if not isinstance(values, kind):
        wanted = "object" if kind is dict else "array"
        refuse(f"The file {name!r} is cut or damaged: it holds no JSON {wanted}.", folder)
    return values


def list_tensors(folder):
    """Return the tensors of a folder: a dict of names and `(shape, read)`.

    `read()` gives a float32 array, read from the file at that moment. Safetensors are preferred to
    `.bin` files, of which no code runs; either is one file, or the shards of an index.
    """
    folder = pathlib.Path(folder)
    for single, list_file in ((SINGLE, list_safetensors), (PICKLE, _list_pickle)):
        if (folder / single).is_file():
            return list_file(folder, single)
        if (folder / f"{single}.index.json").is_file():
            return _list_shards(folder, f"{single}.index.json", list_file)
    return refuse(f"The folder has no weights, {SINGLE!r} or {PICKLE!r}, nor an index.", folder)


def _list_shards(folder, name, list_file):
    index = read_json(folder, name).get("weight_map")
    is_map = isinstance(index, dict) and index
    if not is_map or not all(isinstance(file, str) for file in index.values()):
        refuse(f"The file {name!r} has no `weight_map` of names and files.", folder)
    tensors = {}
    for file in sorted(set(index.values())):
        if pathlib.PurePath(file).name != file or not (folder / file).is_file():
            refuse(f"The index names the file {file!r}, which the folder lacks.", folder)
        listed, expected = list_file(folder, file), {k for k in index if index[k] == file}
        if different := sorted(listed.keys() ^ expected):
            where = "index" if different[0] in expected else "file"
            refuse(
                f"The index and the file {file!r} disagree: only the {where} has the tensor "
                f"{different[0]!r}.",
                folder,
            )
        tensors.update(listed)
    return tensors


def _check_pointer(folder, file):
    """Refuse the text that `git clone` writes in place of a large file."""
    with open(pathlib.Path(folder, file), "rb") as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            refuse(
                f"The file {file!r} is a pointer of Git LFS, not the weights: run `git lfs pull` "
                "there, or `hf download`.",
                folder,
            )


def _list_pickle(folder, file):
    _check_pointer(folder, file)
    return list_pickled_tensors(pathlib.Path(folder, file), lambda problem: refuse(problem, folder))


def list_safetensors(folder, file):
    """Return the tensors of one file, as `list_tensors` does."""
    try:
        import ml_dtypes  # noqa: F401, without it numpy has no bfloat16
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(
            "Reading checkpoints needs safetensors: pip install 'keras_attn[convert]'."
        ) from error
    path = pathlib.Path(folder, file)
    _check_pointer(folder, file)
    try:
        with safe_open(path, "np") as opened:
            headers = {name: opened.get_slice(name) for name in opened.keys()}
            headers = {k: (tuple(x.get_shape()), x.get_dtype()) for k, x in headers.items()}
    except SafetensorError as error:
        message = str(error).splitlines()[0]
        refuse(f"The file {file!r} is cut or damaged ({message}): copy it again.", folder)

    starts = _starts(path)

    def read(name):
        shape, dtype = headers[name]
        if dtype not in _DTYPES and not (dtype == "U8" and name.endswith(_BYTE_TENSORS)):
            refuse(
                f"The tensor {name!r} is of dtype {dtype}: weights in "
                f"{', '.join(_DTYPES)} are read, others not.",
                folder,
            )
        if 0 in shape:  # which cannot be mapped
            return np.zeros(shape, np.float32)
        # Pages of a map are read once, without a copy, and count as memory until the array ends.
        values = np.memmap(path, _DTYPES.get(dtype, "u1"), "r", starts[name], shape)
        return np.asarray(values).astype(np.float32, copy=False)

    return {name: (headers[name][0], functools.partial(read, name)) for name in headers}


def _starts(path):
    """Return the place of each tensor's first byte in a safetensors file, which must be whole."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return {name: 8 + size + tensor["data_offsets"][0] for name, tensor in header.items()}


def write_tensors(folder, tensors, shard_size):
    """Write tensors in float32: to one file, or to shards with an index.

    Args:
        folder: path.
        tensors: dict of names and `(shape, read)`; `read()` gives the array, which then is written
            before the next one is read.
        shard_size: int. Largest size of a file's tensors in bytes; a larger tensor has a file of
            its own.
    """
    shards = _shards(tensors, shard_size)
    if len(shards) == 1:
        return write_safetensors(os.path.join(folder, SINGLE), tensors, shards[0])
    files = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for file, names in zip(files, shards, strict=True):
        write_safetensors(os.path.join(folder, file), tensors, names)
    index = {
        "metadata": {"total_size": sum(map(_size, tensors.values()))},
        "weight_map": {
            name: file for file, names in zip(files, shards, strict=True) for name in names
        },
    }
    write_file(folder, INDEX, index)


def write_file(folder, name, content):
    """Write bytes, or a dict or list as JSON, to a file of a folder."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else json_bytes(content))


def json_bytes(content):
    """Return the bytes of a JSON file with a dict or list."""
    return f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode()


def _size(tensor):
    shape, _ = tensor
    return _BYTES * math.prod(shape)


def _shards(tensors, shard_size):
    """Return a list of names for each file."""
    shards, room = [[]], shard_size
    for name, tensor in tensors.items():
        if shards[-1] and _size(tensor) > room:
            shards.append([])
            room = shard_size
        shards[-1].append(name)
        room -= _size(tensor)
    return shards


def write_safetensors(path, tensors, names):
    """Write the tensors with these names to a safetensors file."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        start, end = end, end + _size(tensors[name])
        shape = list(tensors[name][0])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # values begin at a multiple of 8 bytes
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            shape, read = tensors[name]
            value = np.asarray(read(), "<f4", order="C")
            if value.shape != shape:
                raise RuntimeError(f"{name!r} has the shape {value.shape}, not {shape}.")
            file.write(value.data)
        file.flush()
        os.fsync(file.fileno())
