"""Train the same small language model with every value of one axis.

    python -m recipes.compare --axis residual

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
