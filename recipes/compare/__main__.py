"""Train the same small language model with every value of one axis; see README.md."""

import sys

from ..common import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
