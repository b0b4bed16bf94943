"""Safetensors files, written one tensor at a time."""

import json
import math
import os

import numpy as np

from keras_attn.convert.hugging_face.tensor_files import INDEX, SINGLE

_BYTES = 4  # of a float32


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
    if not isinstance(content, bytes):
        content = f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode()
    with open(path, "wb") as file:
        file.write(content)


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
    """Write the tensors of the given names to a safetensors file."""
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
            value = np.ascontiguousarray(read(), "<f4")
            if value.shape != shape:
                raise RuntimeError(f"{name!r} has the shape {value.shape}, not {shape}.")
            file.write(value.data)
        file.flush()
        os.fsync(file.fileno())
