"""Tensor files of a checkpoint: their names and shapes, and tensors read one at a time."""

import functools
import json
import os
import pathlib
import pickle

import numpy as np

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
_FLOATS = {"F64", "F32", "F16", "BF16"}


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
    except ValueError:  # of JSON or of UTF-8
        values = None
    if not isinstance(values, kind):
        wanted = "object" if kind is dict else "array"
        refuse(f"The file {name!r} is cut or damaged: it holds no JSON {wanted}.", folder)
    return values


def list_tensors(folder):
    """Return the tensors of a folder: a dict of names and `(shape, read)`.

    `read()` gives a float32 array, read from the file at that moment. Safetensors are preferred,
    one file or the shards of an index; a `.bin` file needs torch, which then runs no code of it.
    """
    folder = pathlib.Path(folder)
    if (folder / SINGLE).is_file():
        return list_safetensors(folder, SINGLE)
    if (folder / INDEX).is_file():
        return _list_shards(folder)
    if (folder / PICKLE).is_file():
        return _list_pickle(folder)
    if (folder / f"{PICKLE}.index.json").is_file():
        refuse(
            "Shards of `.bin` files are not read: load the folder with transformers and save it "
            "again by `save_pretrained`, which writes safetensors.",
            folder,
        )
    return refuse(f"The folder has no weights, {SINGLE!r} or {INDEX!r}.", folder)


def _list_shards(folder):
    index = read_json(folder, INDEX).get("weight_map")
    is_map = isinstance(index, dict) and index
    if not is_map or not all(isinstance(file, str) for file in index.values()):
        refuse(f"The file {INDEX!r} has no `weight_map` of names and files.", folder)
    tensors = {}
    for file in sorted(set(index.values())):
        if pathlib.PurePath(file).name != file or not (folder / file).is_file():
            refuse(f"The index names the file {file!r}, which the folder lacks.", folder)
        found, expected = list_safetensors(folder, file), {k for k in index if index[k] == file}
        if different := sorted(found.keys() ^ expected):
            where = "index" if different[0] in expected else "file"
            refuse(
                f"The index and the file {file!r} disagree: only the {where} has the tensor "
                f"{different[0]!r}.",
                folder,
            )
        tensors.update(found)
    return tensors


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
    try:
        with safe_open(path, "np") as opened:
            headers = {name: opened.get_slice(name) for name in opened.keys()}
            headers = {k: (tuple(x.get_shape()), x.get_dtype()) for k, x in headers.items()}
    except SafetensorError as error:
        message = str(error).splitlines()[0]
        refuse(f"The file {file!r} is cut or damaged ({message}): copy it again.", folder)

    def read(name):
        if headers[name][1] not in _FLOATS:
            refuse(
                f"The tensor {name!r} is of dtype {headers[name][1]}: weights in "
                f"{', '.join(sorted(_FLOATS))} are read, others not.",
                folder,
            )
        with safe_open(path, "np") as opened:
            return opened.get_tensor(name).astype(np.float32)

    return {name: (headers[name][0], functools.partial(read, name)) for name in headers}


def _list_pickle(folder):
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"The file {PICKLE!r} needs torch: install it, or save the checkpoint again by "
            "`save_pretrained` of transformers, which writes safetensors. "
            f"Received: folder={os.fspath(folder)!r}."
        ) from error
    try:
        tensors = torch.load(folder / PICKLE, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError):
        refuse(
            f"The file {PICKLE!r} is cut, damaged or holds more than tensors, so it is not "
            "loaded: a pickle may run any code.",
            folder,
        )
    if not isinstance(tensors, dict) or not all(torch.is_tensor(x) for x in tensors.values()):
        refuse(f"The file {PICKLE!r} holds no dict of tensors.", folder)
    return {
        name: (tuple(x.shape), functools.partial(lambda x: x.float().numpy(), x))
        for name, x in tensors.items()
    }
