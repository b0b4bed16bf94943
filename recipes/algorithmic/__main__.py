"""Train a model on an algorithmic task, test it on longer examples and export it; see README.md."""

import sys

from ..common import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
