"""LiteRT files: the interpreter that runs them, and the record that an export appends.

The record is a zip archive after the model, as LiteRT packs the files that belong to one: an
interpreter does not read it, and `unzip` does.
"""

import io
import json
import zipfile

import numpy as np

_FACTS, _EXAMPLES = "keras_attn.json", "golden_outputs.npz"
_SIDES = ("inputs", "outputs")


def interpreter_class():
    """Return the class `Interpreter` of ai-edge-litert, an optional package."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise ImportError(
            "LiteRT files need ai-edge-litert: pip install 'keras_attn[litert]'."
        ) from error
    return Interpreter


def open_file(path, num_threads=None):
    """Return an `Interpreter` of a file."""
    interpreter = interpreter_class()
    try:
        return interpreter(model_path=path, num_threads=num_threads)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"The file is damaged, or it is not a LiteRT file. Received: {path}."
        ) from error


def run_signature(interpreter, name, inputs):
    """Return the outputs of a signature, a dict of arrays, for inputs by name, a dict of arrays.

    Of a signature that does not read one of the inputs, the converter removes it.
    """
    read = interpreter.get_signature_list()[name]["inputs"]
    runner = interpreter.get_signature_runner(name)
    return runner(**{key: x for key, x in inputs.items() if key in read})


def append_record(path, facts, examples):
    """Append to a file `facts`, a dict that JSON holds, and examples of its signatures.

    Args:
        examples: dict of a signature and a pair of its inputs and its outputs, dicts of arrays.
    """
    arrays = {
        f"{name}/{side}/{key}": x
        for name, pair in examples.items()
        for side, tensors in zip(_SIDES, pair, strict=True)
        for key, x in tensors.items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_FACTS, json.dumps(facts))
        archive.writestr(_EXAMPLES, buffer.getvalue())


def read_record(path):
    """Return the facts and the examples that `append_record` wrote; empty dicts for none."""
    if not zipfile.is_zipfile(path):
        return {}, {}
    examples = {}
    try:
        with zipfile.ZipFile(path) as archive:
            if _FACTS not in archive.namelist():  # another program's files
                return {}, {}
            facts = json.loads(archive.read(_FACTS))
            arrays = np.load(io.BytesIO(archive.read(_EXAMPLES)))
            for key in arrays.files:
                name, side, tensor = key.split("/")
                pair = examples.setdefault(name, ({}, {}))
                pair[_SIDES.index(side)][tensor] = arrays[key]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"The record of the file is damaged. Received: {path}.") from error
    return facts, examples
