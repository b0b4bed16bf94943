"""Train actors with different memories in one environment.

    python -m recipes.control

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
