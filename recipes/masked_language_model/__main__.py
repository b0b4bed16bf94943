"""Train BERT to predict masked tokens, evaluate it, export it and write a result card.

    python -m recipes.masked_language_model                   Python's own source
    python -m recipes.masked_language_model --data-dir DIR    a text of yours

See README.md beside this file.
"""

import sys

from .. import cli

if __name__ == "__main__":
    sys.exit(cli.main(__package__))
