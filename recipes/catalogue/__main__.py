"""Write the catalogue and its pictures, or compare them with the docstrings."""

import argparse
import sys

from .files import outdated, write


def main(arguments=None):
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.catalogue", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if files differ")
    if not parser.parse_args(arguments).check:
        write()
        return 0
    if files := outdated():
        print(f"Outdated: {', '.join(files)}. Run: python -m recipes.catalogue", file=sys.stderr)
    return int(bool(files))


if __name__ == "__main__":
    sys.exit(main())
