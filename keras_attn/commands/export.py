"""Export a trained model as a file that other programs run, or inspect such a file."""

import argparse
import contextlib
import itertools
import os
import signal
import sys
import threading
import zipfile
import zlib

from keras_attn import startup
from keras_attn.ops.checks import check_numbers, check_sizes

# Default shapes that are compiled: numbers of rows, and of source or prompt tokens.
BUCKETS = {"batches": (1, 2, 4, 8, 16, 32), "lengths": (32, 128)}


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    options = vars(options)
    parser, run = options.pop("parser"), options.pop("run")
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    _check_compilation(parser, options)
    try:
        with _sigterm_as_exit():
            if "model" in options:
                check_files(options["model"], options.get("tokenizer"))
                startup.import_library("tensorflow")
            return run(**options)
    except (ValueError, ImportError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
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
    parser = argparse.ArgumentParser(prog="keras-attn export", description=__doc__)
    subparsers = parser.add_subparsers(required=True)
    model, tokenizer, lengths, source_length, beams, kind, horizon = (
        argparse.ArgumentParser(add_help=False) for _ in range(7)
    )
    model.add_argument("model", help="the model's .keras file")
    tokenizer.add_argument("--tokenizer", help="the tokenizer's file; without it ids go in and out")
    lengths.add_argument("--max-length", type=int, default=64, help="default: %(default)s")
    lengths.add_argument(
        "--eos-id",
        type=int,
        nargs="+",
        metavar="ID",
        help="tokens that end a sequence (default: that of the tokenizer, or 3)",
    )
    # Of exports without a tokenizer, which may have a length of its own.
    source_length.add_argument(
        "--max-source-length", type=int, default=1024, help="default: %(default)s"
    )
    beams.add_argument("--beams", type=int, default=1, help="1 is greedy (default: %(default)s)")
    beams.add_argument("--length-penalty", type=float, default=0.6, help="default: %(default)s")
    horizon.add_argument(
        "--horizon", type=int, help="values that a forecaster gives (default: as many as it has)"
    )
    kind.add_argument(
        "--kind",
        choices=["classify", "regress", "embed", "tag", "forecast"],
        help="the output of a model of your own (default: by its shape and the labels)",
    )

    command = subparsers.add_parser(
        "saved_model",
        parents=[model, tokenizer, lengths, beams, kind, horizon],
        help="a SavedModel from text to text, for TensorFlow Serving",
        description="Write PATH/VERSION/, complete or not at all.",
    )
    command.set_defaults(parser=command, run=write_saved_model)
    command.add_argument("path", help="directory that holds the versions")
    command.add_argument(
        "--max-source-length",
        type=int,
        help="default: that of the tokenizer, all source positions of a translator, or 1024",
    )
    command.add_argument(
        "--quantize", choices=["int8", "int4"], help="store large weights in 8 or 4 bits"
    )
    command.add_argument(
        "--compile", choices=["xla"], help="compile the decoding for a few shapes at each load"
    )
    for name, unit in (("batches", "rows"), ("lengths", "source or prompt tokens")):
        default = " ".join(map(str, BUCKETS[name]))
        command.add_argument(
            f"--{name}",
            type=int,
            nargs="+",
            metavar="N",
            help=f"numbers of {unit} to compile for (default: {default})",
        )
    command.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="compile for parts of a batch that run at once, such as one a core (default: 1)",
    )
    command.add_argument(
        "--labels", nargs="+", metavar="NAME", help="names of the classes (default: their numbers)"
    )
    command.add_argument("--version", type=int, help="default: one more than the highest version")
    command.add_argument(
        "--stream",
        action="store_true",
        help="steps of a causal model, by which a server streams, without a tokenizer alone",
    )

    command = subparsers.add_parser(
        "onnx",
        parents=[model, lengths, source_length, horizon],
        help="an ONNX file of a model or a part of it, from ids to ids",
        description="Write PATH if ONNX Runtime gives the model's outputs with it.",
    )
    command.set_defaults(parser=command, run=write_onnx)
    command.add_argument("path", help="the file to write")
    command.add_argument(
        "--what",
        choices=["greedy", "step", "encoder", "classify", "regress", "embed", "tag", "forecast"],
        help="the whole decoding loop, a decoder's step with its caches, the encoder, or the kind "
        "of a classifier or of a model of your own (default: the first that the model has)",
    )
    command.add_argument("--quantize", choices=["int8"], help="store large weights in 8 bits")

    command = subparsers.add_parser(
        "litert",
        parents=[model, lengths, source_length, beams, kind, horizon],
        help="a LiteRT file of several signatures, from ids to ids, for phones",
        description="Write PATH if LiteRT's interpreter gives the model's outputs with it, and "
        "print what the precision of the weights costs.",
    )
    command.set_defaults(parser=command, run=write_litert)
    command.add_argument("path", help="the file to write, which ends in .tflite")
    command.add_argument(
        "--signatures", nargs="+", metavar="NAME", help="such as generate (default: all)"
    )
    command.add_argument(
        "--quantize",
        choices=["float16", "int8"],
        help="store the weights in half the bytes, or large ones in a quarter",
    )

    command = subparsers.add_parser(
        "ctranslate2",
        parents=[model, tokenizer],
        help="a directory for CTranslate2, an engine for CPUs and GPUs",
        description="Write PATH if CTranslate2 gives the model's log-probabilities with it.",
    )
    command.set_defaults(parser=command, run=write_ctranslate2)
    command.add_argument("path", help="the directory to write")
    command.add_argument("--quantize", help="int8 or another of CTranslate2's (default: float32)")
    command.add_argument("--max-length", type=int, default=1024, help="default: %(default)s")

    command = subparsers.add_parser(
        "inspect",
        prog="keras-attn inspect",
        help="the contents of an export, and a check of its outputs",
        description="Print the contents of an export, and run the requests that it carries. The "
        "status is 1 if outputs differ from the recorded ones or TensorFlow Serving cannot run the "
        "export, and 2 if there is no readable export.",
    )
    command.set_defaults(parser=command, run=inspect_export)
    command.add_argument(
        "path", help="a version's directory, the one of the versions, or a .tflite file"
    )

    command = subparsers.add_parser(
        "measure",
        prog="keras-attn measure",
        help="the speed and the answers of several exports of a model, and which to serve",
        description="Answer the lines of a file by each export, in turn, in batches and one by "
        "one, and print which is the fastest here. The answers are compared with references, or "
        "with those of the first export.",
    )
    command.set_defaults(parser=command, run=measure_exports)
    command.add_argument(
        "exports",
        nargs="+",
        metavar="EXPORT",
        help="a SavedModel, a .onnx or .tflite file, or a directory for CTranslate2",
    )
    command.add_argument("--lines", required=True, metavar="FILE", help="texts, one in a line")
    command.add_argument("--references", metavar="FILE", help="a good answer to each line")
    command.add_argument("--tokenizer", metavar="FILE", help="for exports that read ids")
    for name, default, what in (
        ("--num-lines", 100, "most lines to read"),
        ("--repetitions", 5, "number of turns"),
    ):
        command.add_argument(name, type=int, default=default, help=f"{what} (default: {default})")
    command.add_argument(
        "--max-length",
        type=int,
        help="longest answer of CTranslate2, in tokens (default: that of a SavedModel, or 64)",
    )
    command.add_argument(
        "--batches",
        dest="batch_sizes",
        type=int,
        nargs="+",
        metavar="N",
        default=[1, 32],
        help="lines in a request (default: 1 32)",
    )
    command.add_argument(
        "--threads", type=int, nargs="+", metavar="N", help="default: 1 and the number of cores"
    )
    command.add_argument(
        "--loss",
        type=float,
        default=0.5,
        help="points of BLEU, or without references percent of other answers, that the served "
        "export may lose (default: %(default)s)",
    )
    return parser


def _check_compilation(parser, options):
    """Refuse shapes to compile for without `--compile`."""
    for name in (*BUCKETS, "parallel"):
        if options.get(name) is not None and options.get("compile") is None:
            parser.error(f"--{name} needs --compile")


def write_saved_model(model, path, version, beams, length_penalty, **options):
    """Write the next version of a SavedModel."""
    from keras_attn import export
    from keras_attn.export.versions import free_version

    free_version(path, version)  # raises before anything slow
    sizes = {name: options.pop(name) for name in (*BUCKETS, "parallel")}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    options["buckets"] = export.Buckets(**{**BUCKETS, **sizes}) if sizes else None
    strategy = _strategy(beams, length_penalty)
    return _write(export.saved_model, model, path, version=version, strategy=strategy, **options)


def write_onnx(model, path, **options):
    """Write an ONNX file."""
    from keras_attn import export

    return _write(export.onnx, model, path, **options)


def write_litert(model, path, beams, length_penalty, **options):
    """Write a LiteRT file, and print the errors of quantised weights."""
    from keras_attn import export

    strategy = _strategy(beams, length_penalty)
    _write(export.litert, model, path, strategy=strategy, **options)
    if options["quantize"] is not None:
        print("\n".join(export.inspect(path).error_lines()))
    return 0


def _strategy(beams, length_penalty):
    from keras_attn import generation

    return None if beams == 1 else generation.Beam(beams, length_penalty)


def write_ctranslate2(model, path, **options):
    """Write a directory for CTranslate2."""
    from keras_attn import export

    return _write(export.ctranslate2, model, path, **options)


def _write(export, model, path, **options):
    """Write an export of a model's file, and print its path."""
    if options.get("tokenizer") is not None:
        options["tokenizer"] = _load_tokenizer(options["tokenizer"])
    print(export(_load_model(model), path, **options))
    return 0


def inspect_export(path):
    """Print the contents and the faults of an export."""
    _check_exists(path)
    startup.import_library("tensorflow")
    from keras_attn import export

    inspection = export.inspect(path)
    print("\n".join(inspection.report()))
    for fault in inspection.faults:
        print(f"keras-attn inspect: {fault}", file=sys.stderr)
    return 1 if inspection.faults else 0


def measure_exports(exports, lines, references, num_lines, loss, **options):
    """Print how fast and how well exports answer the lines of a file, and which to serve."""
    check_numbers(0, loss=loss)  # raises before anything slow
    check_sizes(num_lines=num_lines)
    texts = _read_lines(lines, num_lines)
    options["references"] = None if references is None else _read_lines(references, num_lines)
    for path in (*exports, *filter(None, [options["tokenizer"]])):
        _check_exists(path)
    startup.import_library("tensorflow")
    from keras_attn import export
    from keras_attn.export.measurement import format_measurements

    measurements = export.measure(exports, texts, **options)
    print("\n".join(format_measurements(measurements, loss)))
    return 1 if all(each.failure for each in measurements) else 0


def _check_exists(path):
    if not os.path.exists(path):
        raise ValueError(f"There is no such file or directory. Received: {path!r}.")


def _read_lines(path, number):
    try:
        # Lines of a text and of its references belong together: "\r" alone ends none.
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            lines = [line.rstrip("\r\n") for line in itertools.islice(file, number)]
    except UnicodeDecodeError as error:
        raise ValueError(f"The file must be UTF-8. Received: {path!r}.") from error
    except OSError as error:
        raise ValueError(f"Cannot read the file {path!r}: {error.strerror}.") from error
    if not any(line.strip() for line in lines):
        raise ValueError(f"The file has no text. Received: {path!r}.")
    return lines


def _load_model(path):
    import keras

    from keras_attn.export.golden_outputs import first_line

    try:
        return keras.models.load_model(path)
    except (KeyError, OSError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"The model cannot be loaded. Received: {path!r}: {first_line(error)}"
        ) from error


def _load_tokenizer(path):
    from keras_attn import text

    try:
        return text.load(path)
    except ValueError as error:
        raise ValueError(f"The file for --tokenizer does not hold a tokenizer: {error}") from error


# Members of a complete file in Keras's format.
_KERAS_MEMBERS = {"config.json", "metadata.json", "model.weights.h5"}


def check_files(model, tokenizer=None):
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


if __name__ == "__main__":
    sys.exit(main())
