"""Trains a Transformer to translate, evaluates it, exports it and writes a result card.

    python -m recipes.translate                                            dates, minutes
    python -m recipes.translate --data-dir DIR --source en --target de     a parallel text

See README.md beside this file.
"""

import sys

from .. import program
from .options import parse


def main():
    return program.main("recipes.translate", parse, run)


def run(options, started):
    from .training import Run

    Run(options).finish(started)


if __name__ == "__main__":
    sys.exit(main())
