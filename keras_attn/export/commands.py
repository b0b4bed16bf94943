"""Commands of `python -m keras_attn.export`; each returns the exit status."""

import itertools
import sys
import zipfile
import zlib

import keras

from keras_attn import generation, text
from keras_attn.export import Buckets, ctranslate2, inspect, measure, onnx, saved_model
from keras_attn.export.golden_outputs import first_line
from keras_attn.export.inspection import format_report
from keras_attn.export.measurement import format_measurements
from keras_attn.export.versions import free_version
from keras_attn.ops.checks import check_numbers, check_sizes


def write_saved_model(model, path, version, beams, length_penalty, batches, lengths, **options):
    """Write the next version of a SavedModel."""
    free_version(path, version)  # raises before anything slow
    sizes = {"batches": batches, "lengths": lengths}
    given = {name: value for name, value in sizes.items() if value is not None}
    if given and options["compile"] is None:
        raise ValueError(f"--{next(iter(given))} needs --compile.")
    options["buckets"] = Buckets(**given) if given else None
    strategy = None if beams == 1 else generation.Beam(beams, length_penalty)
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


def measure_exports(exports, lines, references, num_lines, loss, **options):
    """Print how fast and how well exports answer the lines of a file, and which to serve."""
    check_numbers(0, loss=loss)  # raises before anything slow
    check_sizes(num_lines=num_lines)
    options["references"] = None if references is None else _read_lines(references, num_lines)
    found = measure(exports, _read_lines(lines, num_lines), **options)
    print("\n".join(format_measurements(found, loss)))
    return 1 if all(each.failure for each in found) else 0


def _read_lines(path, number):
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\r\n") for line in itertools.islice(file, number)]
    except UnicodeDecodeError as error:
        raise ValueError(f"The file must be UTF-8. Received: {path!r}.") from error
    except OSError as error:
        raise ValueError(f"Cannot read the file {path!r}: {error.strerror}.") from error
    if not any(line.strip() for line in lines):
        raise ValueError(f"The file has no text. Received: {path!r}.")
    return lines


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
