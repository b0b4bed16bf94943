"""Export a trained model as a file that other programs run, or inspect such a file."""

import argparse
import contextlib
import functools
import os
import signal
import sys
import threading
import zipfile
import zlib

import keras

from keras_attn import generation, text
from keras_attn.export import ctranslate2, inspect, onnx, saved_model
from keras_attn.export.golden_outputs import first_line
from keras_attn.export.inspection import format_report
from keras_attn.export.versions import free_version

# Members of a complete file in Keras's format.
_KERAS_MEMBERS = {"config.json", "metadata.json", "model.weights.h5"}


def main(arguments=None):
    """Run the command line; return the exit status."""
    options = vars(_parser().parse_args(arguments))
    run = options.pop("run")
    try:
        with _sigterm_as_exit():
            return run(**options)
    except (ValueError, ImportError, OSError) as error:
        print(f"keras_attn.export: {error}", file=sys.stderr)
        return 2


@contextlib.contextmanager
def _sigterm_as_exit():
    """Turn SIGTERM into an exception, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m keras_attn.export", description=__doc__)
    commands = parser.add_subparsers(required=True)
    model, tokenizer, lengths = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    model.add_argument("model", help="the model's .keras file")
    tokenizer.add_argument("--tokenizer", help="the tokenizer's file; without it ids go in and out")
    for name, default in (("--max-length", 64), ("--max-source-length", 1024)):
        lengths.add_argument(name, type=int, default=default, help="default: %(default)s")

    command = commands.add_parser(
        "saved_model",
        parents=[model, tokenizer, lengths],
        help="a SavedModel from text to text, for TensorFlow Serving",
        description="Write PATH/VERSION/, complete or not at all.",
    )
    command.set_defaults(run=_write_saved_model)
    command.add_argument("path", help="directory that holds the versions")
    command.add_argument("--beams", type=int, default=1, help="1 is greedy (default: %(default)s)")
    command.add_argument("--length-penalty", type=float, default=0.6, help="default: %(default)s")
    command.add_argument("--quantize", choices=["int8"], help="store large weights in eight bits")
    command.add_argument("--version", type=int, help="default: one more than the highest version")

    command = commands.add_parser(
        "onnx",
        parents=[model, lengths],
        help="an ONNX file of a model or a part of it, from ids to ids",
        description="Write PATH if ONNX Runtime gives the model's outputs with it.",
    )
    command.set_defaults(run=functools.partial(_write, onnx))
    command.add_argument("path", help="the file to write")
    command.add_argument(
        "--what",
        choices=["greedy", "step", "encoder"],
        help="the whole decoding loop, a decoder's step with its caches, or the encoder (default: "
        "the first of these that the model has)",
    )

    command = commands.add_parser(
        "ctranslate2",
        parents=[model, tokenizer],
        help="a directory for CTranslate2, an engine for CPUs and GPUs",
        description="Write PATH if CTranslate2 gives the model's log-probabilities with it.",
    )
    command.set_defaults(run=functools.partial(_write, ctranslate2))
    command.add_argument("path", help="the directory to write")
    command.add_argument("--quantize", help="int8 or another of CTranslate2's (default: float32)")
    command.add_argument("--max-length", type=int, default=1024, help="default: %(default)s")

    command = commands.add_parser(
        "inspect",
        help="the contents of an export, and a check of its outputs",
        description="Print the contents of an export, and run the requests that it carries. The "
        "status is 1 if outputs differ from the recorded ones or TensorFlow Serving cannot run the "
        "export, and 2 if there is no readable export.",
    )
    command.set_defaults(run=_inspect)
    command.add_argument("path", help="a version's directory, or the one that holds the versions")
    return parser


def _write_saved_model(model, path, version, beams, length_penalty, **options):
    free_version(path, version)  # raises before anything slow
    strategy = generation.Greedy() if beams == 1 else generation.Beam(beams, length_penalty)
    return _write(saved_model, model, path, version=version, strategy=strategy, **options)


def _write(export, model, path, **options):
    """Write an export of a model's file, and print its path."""
    _check_files(model, options.get("tokenizer"))
    if options.get("tokenizer") is not None:
        options["tokenizer"] = _load_tokenizer(options["tokenizer"])
    print(export(_load_model(model), path, **options))
    return 0


def _inspect(path):
    inspection = inspect(path)
    print("\n".join(format_report(inspection)))
    for fault in inspection.faults:
        print(f"keras_attn.export: {fault}", file=sys.stderr)
    return 1 if inspection.faults else 0


def _check_files(model, tokenizer):
    """Raise a `ValueError` if an input file is missing or incomplete, without loading it."""
    if not os.path.exists(model):
        raise ValueError(f"The model's file does not exist. Received: {model!r}.")
    if not _is_complete(model):
        raise ValueError(
            "The model's file is not a complete .keras file: it is truncated, damaged or has "
            f"another format. Received: {model!r}, of {os.path.getsize(model):,} bytes."
        )
    if tokenizer is not None and not os.path.isfile(tokenizer):
        raise ValueError(f"The file for --tokenizer does not exist. Received: {tokenizer!r}.")


def _is_complete(path):
    if os.path.isdir(path) or not path.endswith(".keras"):
        return True  # Keras loads other formats too
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as file:
        return _KERAS_MEMBERS <= set(file.namelist())
    return False


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


if __name__ == "__main__":
    sys.exit(main())
