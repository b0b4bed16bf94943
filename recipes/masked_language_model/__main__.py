"""Trains BERT to guess masked tokens, evaluates it, exports it and writes a result card.

    python -m recipes.masked_language_model                   Python's own source
    python -m recipes.masked_language_model --data-dir DIR    a text of yours

See README.md beside this file.
"""

import sys

from .. import program
from .options import parse


def main():
    return program.main("recipes.masked_language_model", parse, run)


def run(options, started):
    from .training import Run

    Run(options).finish(started)


if __name__ == "__main__":
    sys.exit(main())
