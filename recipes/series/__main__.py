"""Train a model of time series, evaluate it beside baselines and export it; see README.md."""

import sys

from ..common import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
