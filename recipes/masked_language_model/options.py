"""The command line of the recipe, and what of it makes a run what it is."""

import argparse

from ..options import add_run_options, check_at_least, check_learning_rate
from ..text.options import (
    add_budget_options,
    add_text_options,
    check_text_options,
    fill_budget,
)
from ..text.options import settings as text_settings

SIZES = {"num_layers": 4, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
SETTINGS = (
    *("tokenizer", "vocabulary_size", *SIZES, "dropout", "context", "mask_rate", "precision"),
    *("batch_size", "steps", "epochs", "learning_rate", "warmup_steps", "clip_norm", "seed"),
)


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.masked_language_model",
        description="Trains BERT to guess masked tokens from both sides, evaluates it on held-out "
        "text, exports it and writes a result card. Without --data-dir and --text the text is the "
        "source of Python's standard library. Started again with the same --out, a run goes on "
        "where it stopped.",
    )
    add = parser.add_argument
    add_text_options(add, tokenizer="bpe")
    add("--out", default="runs/masked_language_model", help="default: %(default)s")
    for name, value in SIZES.items():
        add(f"--{name.replace('_', '-')}", type=int, default=value, help="default: %(default)s")
    add("--dropout", type=float, default=0.1, help="default: %(default)s")
    add("--context", type=int, default=128, help="tokens of a segment (default: %(default)s)")
    add("--mask-rate", type=float, default=0.15, help="share to guess (default: %(default)s)")
    add_budget_options(add)
    add_run_options(add)
    options = parser.parse_args(arguments)
    check_text_options(parser, options)
    check_at_least(
        *(parser, options, 1, *SIZES),
        *("vocabulary_size", "context", "batch_size", "train_tokens", "steps", "epochs"),
        *("valid_tokens", "checkpoint_steps", "export_version"),
    )
    check_at_least(parser, options, 0, "warmup_steps", "dropout")
    check_learning_rate(parser, options)
    if not 0 < options.mask_rate < 1:
        parser.error("--mask-rate must be between 0 and 1")
    if options.hidden_dim % options.num_heads:
        parser.error("--num-heads must divide --hidden-dim")
    fill_budget(options)
    return options


def settings(options, text):
    """What must not change from one start to the next."""
    return text_settings(options, SETTINGS, text)
