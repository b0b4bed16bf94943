"""Commands of `python -m keras_attn.export`; each returns the exit status."""

import sys
import zipfile
import zlib

import keras

from keras_attn import generation, text
from keras_attn.export import Buckets, ctranslate2, inspect, onnx, saved_model
from keras_attn.export.golden_outputs import first_line
from keras_attn.export.inspection import format_report
from keras_attn.export.versions import free_version


def write_saved_model(model, path, version, beams, length_penalty, batches, lengths, **options):
    """Write the next version of a SavedModel."""
    free_version(path, version)  # raises before anything slow
    sizes = {"batches": batches, "lengths": lengths}
    given = {name: value for name, value in sizes.items() if value is not None}
    options["buckets"] = Buckets(**given) if given else None
    strategy = generation.Greedy() if beams == 1 else generation.Beam(beams, length_penalty)
    return _write(saved_model, model, path, version=version, strategy=strategy, **options)


def write_onnx(model, path, **options):
    """Write an ONNX file."""
    return _write(onnx, model, path, **options)


def write_ctranslate2(model, path, **options):
    """Write a directory for CTranslate2."""
    return _write(ctranslate2, model, path, **options)


def _write(export, model, path, **options):
    """Write an export of a model's file, and print its path."""
    if options.get("tokenizer") is not None:
        options["tokenizer"] = _load_tokenizer(options["tokenizer"])
    print(export(_load_model(model), path, **options))
    return 0


def inspect_export(path):
    """Print the contents and the faults of an export."""
    inspection = inspect(path)
    print("\n".join(format_report(inspection)))
    for fault in inspection.faults:
        print(f"keras_attn.export: {fault}", file=sys.stderr)
    return 1 if inspection.faults else 0


def _load_model(path):
    try:
        return keras.models.load_model(path)
    except (KeyError, OSError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"The model cannot be loaded. Received: {path!r}: {first_line(error)}"
        ) from error


def _load_tokenizer(path):
    try:
        return text.load(path)
    except ValueError as error:
        raise ValueError(f"The file for --tokenizer does not hold a tokenizer: {error}") from error
