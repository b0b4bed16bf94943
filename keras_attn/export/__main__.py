"""Export a trained model as a file that other programs run, or inspect such a file."""

import argparse
import contextlib
import signal
import sys
import threading

from keras_attn import generation
from keras_attn.export import ctranslate2, inspect, onnx, saved_model
from keras_attn.export.cli_inputs import check_files, load_model, load_tokenizer
from keras_attn.export.inspection import format_report
from keras_attn.export.versions import free_version

_MODEL = "the model's .keras file"
_TOKENIZER = "the tokenizer's file; without it ids go in and out"


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m keras_attn.export", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_saved_model(commands)
    _add_onnx(commands)
    _add_ctranslate2(commands)
    _add_inspect(commands)
    options = parser.parse_args(arguments)
    try:
        with _sigterm_as_exit():
            return options.run(options)
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


def _add_lengths(command):
    command.add_argument("--max-length", type=int, default=64, help="default: %(default)s")
    command.add_argument("--max-source-length", type=int, default=1024, help="default: %(default)s")


def _add_saved_model(commands):
    command = commands.add_parser(
        "saved_model",
        help="a SavedModel from text to text, for TensorFlow Serving",
        description="Write PATH/VERSION/, complete or not at all.",
    )
    command.add_argument("model", help=_MODEL)
    command.add_argument("path", help="directory that holds the versions")
    command.add_argument("--tokenizer", help=_TOKENIZER)
    _add_lengths(command)
    command.add_argument("--beams", type=int, default=1, help="1 is greedy (default: %(default)s)")
    command.add_argument("--length-penalty", type=float, default=0.6, help="default: %(default)s")
    command.add_argument("--quantize", choices=["int8"], help="store large weights in eight bits")
    command.add_argument("--version", type=int, help="default: one more than the highest version")
    command.set_defaults(run=_run_saved_model)


def _run_saved_model(options):
    check_files(options.model, options.tokenizer)
    free_version(options.path, options.version)
    tokenizer = load_tokenizer(options.tokenizer)
    model = load_model(options.model)
    if options.beams == 1:
        strategy = generation.Greedy()
    else:
        strategy = generation.Beam(options.beams, options.length_penalty)
    directory = saved_model(
        model,
        options.path,
        tokenizer=tokenizer,
        strategy=strategy,
        max_length=options.max_length,
        max_source_length=options.max_source_length,
        quantize=options.quantize,
        version=options.version,
    )
    print(directory)
    return 0


def _add_onnx(commands):
    command = commands.add_parser(
        "onnx",
        help="an ONNX file of a model or a part of it, from ids to ids",
        description="Write PATH if ONNX Runtime gives the model's outputs with it.",
    )
    command.add_argument("model", help=_MODEL)
    command.add_argument("path", help="the file to write")
    _add_lengths(command)
    command.add_argument(
        "--what",
        choices=["greedy", "step", "encoder"],
        help="the whole decoding loop, a decoder's step with its caches, or the encoder (default: "
        "the first of these that the model has)",
    )
    command.set_defaults(run=_run_onnx)


def _run_onnx(options):
    check_files(options.model)
    model = load_model(options.model)
    lengths = {key: getattr(options, key) for key in ("max_length", "max_source_length")}
    print(onnx(model, options.path, options.what, **lengths))
    return 0


def _add_ctranslate2(commands):
    command = commands.add_parser(
        "ctranslate2",
        help="a directory for CTranslate2, an engine for CPUs and GPUs",
        description="Write PATH if CTranslate2 gives the model's log-probabilities with it.",
    )
    command.add_argument("model", help=_MODEL)
    command.add_argument("path", help="the directory to write")
    command.add_argument("--tokenizer", help=_TOKENIZER)
    command.add_argument("--quantize", help="int8 or another of CTranslate2's (default: float32)")
    command.add_argument("--max-length", type=int, default=1024, help="default: %(default)s")
    command.set_defaults(run=_run_ctranslate2)


def _run_ctranslate2(options):
    check_files(options.model, options.tokenizer)
    tokenizer = load_tokenizer(options.tokenizer)
    model = load_model(options.model)
    lengths = {"max_length": options.max_length}
    print(ctranslate2(model, options.path, tokenizer, options.quantize, **lengths))
    return 0


def _add_inspect(commands):
    command = commands.add_parser(
        "inspect",
        help="the contents of an export, and a check of its outputs",
        description="Print the contents of an export, and run the requests that it carries. The "
        "status is 1 if outputs differ from the recorded ones or TensorFlow Serving cannot run the "
        "export, and 2 if there is no readable export.",
    )
    command.add_argument("path", help="a version's directory, or the one that holds the versions")
    command.set_defaults(run=_run_inspect)


def _run_inspect(options):
    inspection = inspect(options.path)
    print("\n".join(format_report(inspection)))
    for fault in inspection.faults:
        print(f"keras_attn.export: {fault}", file=sys.stderr)
    return 1 if inspection.faults else 0


if __name__ == "__main__":
    sys.exit(main())
