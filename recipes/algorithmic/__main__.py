"""Train a model on an algorithmic task, test it on longer examples, export it, write a card.

    python -m recipes.algorithmic --task reverse       a Universal Transformer with ACT
    python -m recipes.algorithmic --task parity        an RNN with ACT

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
