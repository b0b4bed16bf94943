"""Trains the same small language model with every value of one axis.

    python -m recipes.compare --axis residual

See README.md beside this file.
"""

import sys

from .. import files, program
from .options import parse


def main():
    return program.main("recipes.compare", parse, run)


def run(options, started):
    from ..text.tokens import FILE_NAME
    from .training import Comparison

    comparison = Comparison(options)
    if options.prepare:
        with files.claimed(options.out):
            comparison.corpus.tokens.save()
        print(f"Tokens: {options.out}/{FILE_NAME}")
        return
    lines = comparison.complete()
    if lines is not None:
        print("\n".join(lines))
        print(f"Table: {options.out}/table.md\nCard:  {options.out}/card.json")


if __name__ == "__main__":
    sys.exit(main())
