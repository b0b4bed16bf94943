"""Train a language model, evaluate it, export it and write a result card.

    python -m recipes.language_model                                        Python's own source
    python -m recipes.language_model --data-dir DIR --model transformer_xl  a text of yours

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
