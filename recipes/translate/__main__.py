"""Train a Transformer to translate, evaluate it, export it and write a result card.

    python -m recipes.translate                                            dates, minutes
    python -m recipes.translate --data-dir DIR --source en --target de     a parallel text

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
