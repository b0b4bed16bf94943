"""Trains a model on an algorithmic task, tests it on longer examples, exports it, writes a card.

    python -m recipes.algorithmic --task reverse       a Universal Transformer with ACT
    python -m recipes.algorithmic --task parity        an RNN with ACT

See README.md beside this file.
"""

import sys

from .. import program
from .options import parse


def main():
    return program.main("recipes.algorithmic", parse, run)


def run(options, started):
    from .parity_run import ParityRun
    from .sequence_run import SequenceRun

    run = (ParityRun if options.task == "parity" else SequenceRun)(options)
    run.finish(started)


if __name__ == "__main__":
    sys.exit(main())
