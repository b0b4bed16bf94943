"""Write the catalogue, or compare it with the docstrings: python -m keras_attn.catalogue"""

import argparse
import sys

from keras_attn.catalogue.files import outdated, write


def main(arguments=None):
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m keras_attn.catalogue", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if files differ")
    if not parser.parse_args(arguments).check:
        write()
        return 0
    if files := outdated():
        print(f"Outdated: {', '.join(files)}. Run: python -m keras_attn.catalogue", file=sys.stderr)
    return int(bool(files))


if __name__ == "__main__":
    sys.exit(main())
