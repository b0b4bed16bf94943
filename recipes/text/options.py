"""Options of recipes that learn from a text, and what follows from them."""

import math

from ..options import add_prepare_option, add_schedule_options, divide, set_missing
from . import tokens


def add_text_options(add, tokenizer):
    """What to read, and as what."""
    add("--data-dir", help="directory with train.txt, valid.txt and test.txt, each [.gz]")
    add("--text", help="one file, of which the last tenth is held out")
    add(
        "--tokenizer",
        default=tokenizer,
        choices=["characters", "bpe", "unigram"],
        help="default: %(default)s",
    )
    add("--vocabulary-size", type=int, help="most tokens (default: all characters; 4000 subwords)")
    add_prepare_option(add)


def add_budget_options(add):
    """How much to train, and how fast."""
    add("--batch-size", type=int, default=16, help="segments of a step (default: %(default)s)")
    add("--train-tokens", type=int, default=4_000_000, help="to train on (default: %(default)s)")
    add("--steps", type=int, help="in place of --train-tokens")
    add_schedule_options(add)
    add("--valid-tokens", type=int, default=100_000, help="of a validation (default: %(default)s)")


def check_text_options(parser, options):
    if options.data_dir and options.text:
        parser.error("--data-dir and --text exclude each other")


def fill_budget(options):
    """Defaults of the above that depend on each other and on `context`."""
    steps = options.steps or math.ceil(options.train_tokens / options.batch_size / options.context)
    divide(options, steps)
    subwords = options.tokenizer != "characters"
    defaults = {"vocabulary_size": 4000 if subwords else None}
    set_missing(options, {"warmup_steps": options.steps // 20, **defaults})


def settings(options, names, text):
    """What must not change between two starts: the options of those names, and what is learned.

    Args:
        options: of the command line.
        names: of those that count.
        text: as `recipes.text.data.read_text` gives it: a name, and str by split.
    """
    name, splits = text
    chosen = {name: getattr(options, name) for name in names}
    return {"text": name, "sha256": tokens.digest(*splits.values()), **chosen}
