"""Train a language model, evaluate it, export it and write a result card; see README.md."""

import sys

from ..common import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
