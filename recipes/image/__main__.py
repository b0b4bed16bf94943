"""Train a model of images, evaluate it, draw samples, export it and write a result card.

    python -m recipes.image                                       scikit-learn's digits
    python -m recipes.image --dataset cifar10 --data-dir DIR      files of yours

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
