"""The command line of the recipe, and what of it makes a run what it is."""

import argparse

from ..options import add_device_options, check_at_least, check_learning_rate
from ..text.options import (
    add_budget_options,
    add_text_options,
    check_text_options,
    fill_budget,
)
from ..text.options import settings as text_settings

AXES = ("score", "pattern", "position", "residual", "depth", "memory", "loss")
SIZES = {"num_layers": 4, "num_heads": 4, "hidden_dim": 128, "intermediate_dim": 512}
SETTINGS = (
    *("axis", "tokenizer", "vocabulary_size", *SIZES, "dropout", "context", "valid_tokens"),
    *("batch_size", "steps", "epochs", "learning_rate", "warmup_steps", "clip_norm", "seed"),
    "precision",
)


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.compare",
        description="Trains the same small language model with every value of one axis, on the "
        "same text and for the same number of tokens, and writes a table and its curves. Started "
        "again with the same --out, it goes on with the values that are missing.",
    )
    add = parser.add_argument
    add("--axis", required=True, choices=AXES)
    add("--values", nargs="+", help="train only these (default: all)")
    add_text_options(add, tokenizer="characters")
    add("--out", help="default: runs/compare-AXIS")
    for name, value in SIZES.items():
        add(f"--{name.replace('_', '-')}", type=int, default=value, help="default: %(default)s")
    add("--dropout", type=float, default=0.0, help="default: %(default)s")
    add("--context", type=int, default=128, help="tokens of a segment (default: %(default)s)")
    add_budget_options(add)
    add_device_options(add)
    parser.set_defaults(train_tokens=1_000_000)
    options = parser.parse_args(arguments)
    check_text_options(parser, options)
    check_at_least(
        *(parser, options, 1, *SIZES),
        *("vocabulary_size", "batch_size", "train_tokens", "steps", "epochs", "valid_tokens"),
    )
    check_at_least(parser, options, 8, "context")
    check_at_least(parser, options, 0, "warmup_steps", "dropout")
    check_learning_rate(parser, options)
    if options.hidden_dim % options.num_heads:
        parser.error("--num-heads must divide --hidden-dim")
    if options.out is None:
        options.out = f"runs/compare-{options.axis}"
    fill_budget(options)
    return options


def settings(options, text):
    """What must not change from one start to the next."""
    return text_settings(options, SETTINGS, text)
