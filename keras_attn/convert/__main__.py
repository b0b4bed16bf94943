"""Convert a checkpoint of Hugging Face, or write golden outputs beside it."""

import argparse
import sys

from keras_attn.convert import commands


def main(arguments=None):
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.folder == "golden":
            return commands.write_golden_outputs(options.out)
        return commands.convert(options.folder, options.out, options.export)
    except (ValueError, ImportError, OSError) as error:
        print(f"keras_attn.convert: {error}", file=sys.stderr)
        return 2


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m keras_attn.convert",
        description=__doc__,
        epilog="`python -m keras_attn.convert golden FOLDER` computes outputs by transformers, "
        "which needs torch, and writes them into FOLDER: each later conversion compares.",
    )
    parser.add_argument("folder", help="the checkpoint's folder, or the word golden")
    parser.add_argument("out", help="the .keras file to write; after golden, the folder")
    parser.add_argument("--export", metavar="PATH", help="write a SavedModel to PATH/VERSION too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
