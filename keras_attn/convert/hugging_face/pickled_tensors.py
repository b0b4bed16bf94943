"""`.bin` files of PyTorch, read without it: pickles that describe tensors, then their numbers.

A pickle may run any code. Here it makes containers, numbers, texts and descriptions of tensors, and
every other name in it is refused. Numbers are read when a tensor is asked for.
"""

import collections
import functools
import io
import os
import pickle
import pickletools
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

_STORAGES = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "ShortStorage": "int16",
}
_DTYPES = {f"torch.{name}": dtype for name, dtype in _STORAGES.items()}
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_ZIP, _LEGACY = b"PK\x03\x04", 0x1950A86A20F9469CFC6C  # how a file of either format begins
_WRAPPERS = ("state_dict", "model_state_dict", "model")  # where training programs put the weights


class _Storage(NamedTuple):
    """Numbers of a file: `count` of them, from number `first` on, in the data of a key."""

    key: str
    dtype: np.dtype
    count: int
    first: int


class _Tensor(NamedTuple):
    """A view of the numbers of a storage."""

    storage: _Storage
    offset: int
    size: tuple
    stride: tuple

    @property
    def span(self):
        """Number of the storage's numbers from the first to the last of the tensor."""
        if 0 in self.size:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))


class _Place(NamedTuple):
    """Place of the data of a key in the file: first byte, bytes, and checksum or None."""

    position: int
    size: int
    checksum: int | None


class _Refused(Exception):
    """A name in a pickle that is neither of a tensor nor of a container."""


class _Unpickler(pickle.Unpickler):
    """Makes containers, numbers, texts and descriptions of tensors."""

    def __init__(self, file):
        super().__init__(file)
        self.storages = {}  # by key
        self._names = {
            "collections.OrderedDict": collections.OrderedDict,
            "torch._utils._rebuild_tensor": self._rebuild_tensor,
            "torch._utils._rebuild_tensor_v2": self._rebuild_tensor,
            "torch._utils._rebuild_parameter": self._rebuild_parameter,
            "torch._tensor._rebuild_from_type_v2": self._rebuild_from_type,
            **{name: name for name in ("torch.Tensor", *_DTYPES)},
        }

    def find_class(self, module, name):
        if f"{module}.{name}" not in self._names:
            raise _Refused(f"{module}.{name}")
        return self._names[f"{module}.{name}"]

    def persistent_load(self, identifier):
        kind, dtype, key, _, count, *view = identifier
        _check(kind == "storage" and type(key) is str)
        _check_counts(count)
        whole = _Storage(key, _dtype(_DTYPES[dtype]), count, 0)
        _check(self.storages.setdefault(key, whole) == whole)
        if not view or view[0] is None:
            return whole
        _, first, size = view[0]  # a part of a storage, in legacy files
        _check_counts(first, size, count - first - size)
        return whole._replace(first=first, count=size)

    def _rebuild_tensor(self, storage, offset, size, stride, *options):
        """Return the description of a tensor whose numbers are all in the storage."""
        _check(type(storage) is _Storage and len(size) == len(stride))
        _check_counts(offset, *size, *stride)
        tensor = _Tensor(storage, offset, tuple(size), tuple(stride))
        _check_counts(storage.count - offset - tensor.span)
        return tensor

    def _rebuild_parameter(self, tensor, *options):
        return tensor

    def _rebuild_from_type(self, rebuild, kind, arguments, state):
        return rebuild(*arguments)


def _dtype(name):
    import ml_dtypes  # noqa: F401, without it numpy has no bfloat16

    return np.dtype(name)


def _check(condition):
    if not condition:
        raise pickle.UnpicklingError


def _check_counts(*counts):
    _check(all(type(count) is int and count >= 0 for count in counts))


def list_pickled_tensors(path, refuse):
    """Return the tensors of a `.bin` file: a dict of names and `(shape, read)`.

    Args:
        path: `pathlib.Path` of the file, a zip archive or five pickles before the numbers.
        refuse: function of a sentence, which raises it as an error.
    """
    with open(path, "rb") as file:
        try:
            list_file = _list_zip if file.read(len(_ZIP)) == _ZIP else _list_legacy
            values, places, is_little = list_file(file)
            tensors = _tensors(values)
            _check_places(tensors.values(), places, os.fstat(file.fileno()).st_size)
        except _Refused as error:
            refuse(
                f"The file {path.name!r} holds {error}, where only tensors and containers are "
                "read: a pickle may run any code."
            )
        except Exception:  # damaged bytes raise errors of any kind
            refuse(f"The file {path.name!r} is cut or damaged, or holds no dict of tensors.")

    def read(name):
        tensor = tensors[name]
        if tensor.storage.dtype.name not in _FLOATS:
            refuse(
                f"The tensor {name!r} is of dtype {tensor.storage.dtype}: weights in "
                f"{', '.join(_FLOATS)} are read, others not."
            )
        values = _read(path, tensor, places[tensor.storage.key], is_little)
        if values is None:
            refuse(f"The file {path.name!r} is damaged in the tensor {name!r}: copy it again.")
        return values

    return {name: (tensor.size, functools.partial(read, name)) for name, tensor in tensors.items()}


def _tensors(values):
    """Return the tensors of a file by their names, also those in a file of a training."""
    for name in _WRAPPERS:
        if isinstance(values.get(name), dict):
            values = values[name]
    _check(all(type(name) is str and isinstance(x, _Tensor) for name, x in values.items()))
    return values


def _list_zip(file):
    """Return the object of a zip archive, the `_Place` of each key, and if it is little-endian."""
    with zipfile.ZipFile(file) as archive:
        (main,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        folder = main.removesuffix("data.pkl")
        entries = {entry.filename: entry for entry in archive.infolist()}
        # A compressed entry may be larger than any memory; PyTorch writes none.
        _check(all(entry.compress_type == zipfile.ZIP_STORED for entry in entries.values()))
        order = archive.read(f"{folder}byteorder") if f"{folder}byteorder" in entries else b"little"
        values, storages = _unpickle(io.BytesIO(archive.read(main)))
    places = {}
    for key in storages:
        entry = entries[f"{folder}data/{key}"]
        file.seek(entry.header_offset)
        header = file.read(30)  # then the name and more, whose lengths are its last two numbers
        lengths = np.frombuffer(header, "<u2", 2, 26).sum()
        position = entry.header_offset + len(header) + int(lengths)
        places[key] = _Place(position, entry.file_size, entry.CRC)
    return values, places, order == b"little"


def _list_legacy(file):
    """Return what `_list_zip` returns, of the format that PyTorch wrote before its version 1.6."""
    file.seek(0)
    _check(_unpickle(file)[0] == _LEGACY)
    for _ in ("version", "byte order of the writer"):  # numbers are little-endian in any case
        _unpickle(file)
    values, storages = _unpickle(file)
    places = {}
    for key in _unpickle(file)[0]:
        count = int.from_bytes(file.read(8), "little")
        _check(count == storages[key].count)
        places[key] = _Place(file.tell(), count * storages[key].dtype.itemsize, None)
        file.seek(places[key].size, os.SEEK_CUR)
    return values, places, True


def _check_places(tensors, places, end):
    """Refuse numbers beyond the data of their key, and data beyond the end of the file."""
    for storage in (tensor.storage for tensor in tensors):
        place, last = places[storage.key], storage.first + storage.count
        _check_counts(place.size - last * storage.dtype.itemsize, end - place.position - place.size)


def _unpickle(file):
    """Return the object of a file's next pickle, and the storages that it names."""
    start = file.tell()
    for opcode, value, position in pickletools.genops(file):
        # The memory of `pickle` has a place for each index below the largest.
        _check("PUT" not in opcode.name or value <= position - start)
    size = file.tell() - start
    file.seek(start)
    unpickler = _Unpickler(io.BytesIO(file.read(size)))
    return unpickler.load(), unpickler.storages


def _read(path, tensor, place, is_little):
    """Return the numbers of a tensor as a float32 array; None if they are damaged."""
    storage = tensor.storage
    itemsize, span = storage.dtype.itemsize, tensor.span
    start = place.position + (storage.first + tensor.offset) * itemsize
    numbers = np.fromfile(path, f"u{itemsize}", span, offset=start)
    is_whole = numbers.nbytes == place.size and place.checksum is not None
    if numbers.size < span or (is_whole and zlib.crc32(numbers) != place.checksum):
        return None
    numbers = (numbers if is_little else numbers.byteswap()).view(storage.dtype)
    strides = [step * itemsize for step in tensor.stride]
    view = np.lib.stride_tricks.as_strided(numbers, tensor.size, strides)
    return view.astype(np.float32, order="C", copy=False)
