"""Convert a checkpoint of Hugging Face, or a model to one; write golden outputs beside it."""

import argparse
import sys
import warnings

from keras_attn.convert import commands


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.folder == "to-hugging-face") != (options.target is not None):
        parser.error("to-hugging-face, and it alone, takes MODEL.keras and FOLDER")
    if options.export is not None and options.folder in ("golden", "to-hugging-face"):
        parser.error(f"{options.folder} writes no SavedModel: leave --export out")
    if options.export == "":
        parser.error("--export must be the path of a directory. Received: --export ''")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(options)
    except (ValueError, ImportError, OSError) as error:
        print(f"keras_attn.convert: {error}", file=sys.stderr)
        return 2


def _run(options):
    if options.target is not None:
        return commands.write_folder(options.out, options.target)
    if options.folder == "golden":
        return commands.write_golden_outputs(options.out)
    return commands.convert(options.folder, options.out, options.export)


def _show_warning(message, category, *place):
    """Print a warning as one line, without the line of code that gave it."""
    print(f"keras_attn.convert: {message}", file=sys.stderr)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m keras_attn.convert",
        description=__doc__,
        epilog="`python -m keras_attn.convert golden FOLDER` computes outputs by transformers, "
        "which needs torch, and writes them into FOLDER: each later conversion compares. "
        "`python -m keras_attn.convert to-hugging-face MODEL.keras FOLDER` writes a checkpoint.",
    )
    parser.add_argument(
        "folder", help="the checkpoint's folder, or the word golden or to-hugging-face"
    )
    parser.add_argument(
        "out",
        help="the .keras file to write; after golden the folder, after to-hugging-face the file",
    )
    parser.add_argument("target", nargs="?", help="after to-hugging-face, the folder to write")
    parser.add_argument("--export", metavar="PATH", help="write a SavedModel to PATH/VERSION too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
