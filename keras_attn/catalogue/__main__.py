"""Write the catalogue, or compare it with the docstrings: python -m keras_attn.catalogue"""

import argparse
import sys

from keras_attn.deferred_imports import complete


def main(arguments=None):
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m keras_attn.catalogue", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if files differ")
    options = parser.parse_args(arguments)
    complete("keras_attn")
    from keras_attn.catalogue.files import outdated, write  # imports Keras

    if not options.check:
        write()
        return 0
    if files := outdated():
        print(f"Outdated: {', '.join(files)}. Run: python -m keras_attn.catalogue", file=sys.stderr)
    return int(bool(files))


if __name__ == "__main__":
    sys.exit(main())
