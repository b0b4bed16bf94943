"""Trains a model of images, evaluates it, draws samples, exports it and writes a result card.

    python -m recipes.image                                       scikit-learn's digits
    python -m recipes.image --dataset cifar10 --data-dir DIR      files of yours

See README.md beside this file.
"""

import sys

from .. import program
from .options import parse


def main():
    return program.main("recipes.image", parse, run)


def run(options, started):
    from .training import Run

    Run(options).finish(started)


if __name__ == "__main__":
    sys.exit(main())
