"""Train actors with different memories in one environment; see README.md."""

import sys

from ..common import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
