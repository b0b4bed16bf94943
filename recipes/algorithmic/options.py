"""The command line of the recipe."""

import argparse

from ..options import (
    add_run_options,
    add_schedule_options,
    check_at_least,
    check_learning_rate,
    divide,
    set_missing,
)

SEQUENCES = ("copy", "reverse", "addition")
MODELS = {
    **dict.fromkeys(SEQUENCES, ("universal_transformer", "transformer")),
    "parity": ("act_rnn", "rnn"),
}
# The shortest --train-length that leaves something to learn.
_SHORTEST = {"addition": 3}
_DEFAULTS = {
    "sequences": {
        "train_length": 10,
        "num_layers": 4,
        "hidden_dim": 64,
        "batch_size": 64,
        "steps": 10_000,
        "ponder_loss": 0.01,
    },
    "parity": {
        "train_length": 16,
        "num_layers": 20,
        "hidden_dim": 64,
        "batch_size": 128,
        "steps": 20_000,
        "ponder_loss": 0.001,
    },
}


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.algorithmic",
        description="Trains a model to copy, to reverse or to add sequences of digits, or to tell "
        "the parity of some numbers; tests it on examples never trained on, also longer ones; "
        "exports it and writes a result card. Started again with the same --out, a run goes on "
        "where it stopped.",
    )
    add = parser.add_argument
    add("--task", default="copy", choices=list(MODELS))
    add("--out", default="runs/algorithmic", help="the run's directory (default: %(default)s)")
    add(
        "--model",
        choices=sorted({name for names in MODELS.values() for name in names}),
        help="universal_transformer (default) or transformer; of parity act_rnn (default) or rnn",
    )
    add("--depth", choices=["act", "recurrent"], help="of universal_transformer (default: act)")
    add("--train-length", type=int, help="the longest in training (default: 10; of parity 16)")
    add(
        "--test-lengths",
        type=int,
        nargs="+",
        help="besides all trained ones (default: 1.5 and 2 times the longest; of parity none)",
    )
    add(
        "--max-offset",
        type=int,
        help="most positions that a training example begins late "
        "(default: by how much the longest test is longer)",
    )
    add("--num-layers", type=int, help="layers, or most steps (default: 4; of parity 20)")
    add("--num-heads", type=int, default=4, help="default: %(default)s")
    add("--hidden-dim", type=int, help="default: 64")
    add("--intermediate-dim", type=int, help="default: 4 times the hidden")
    add("--dropout", type=float, default=0.0, help="default: %(default)s")
    add("--residual", default="post_norm", choices=["post_norm", "pre_norm"])
    add("--ponder-loss", type=float, help="weight of ACT's (default: 0.01; of parity 0.001)")
    add("--halting-bias", type=float, default=1.0, help="ACT's first one (default: %(default)s)")
    add("--batch-size", type=int, help="examples of a step (default: 64; of parity 128)")
    add("--steps", type=int, help="default: 10000; of parity 20000")
    add_schedule_options(add)
    add(
        "--test-examples",
        type=int,
        default=500,
        help="of each length, fewer where fewer are held out (default: %(default)s)",
    )
    add_run_options(add)
    options = parser.parse_args(arguments)
    _fill_model(parser, options)
    _fill(options)
    check_at_least(
        *(parser, options, 1),
        *("train_length", "num_layers", "num_heads", "hidden_dim", "intermediate_dim"),
        *("batch_size", "steps", "epochs", "test_examples", "checkpoint_steps", "export_version"),
    )
    check_at_least(parser, options, 0, "max_offset", "warmup_steps", "dropout", "ponder_loss")
    check_learning_rate(parser, options)
    shortest = _SHORTEST.get(options.task, 1)
    for name, value in (
        ("--train-length", options.train_length),
        *(("--test-lengths", length) for length in options.test_lengths),
    ):
        if value < shortest:
            parser.error(f"{name} must be at least {shortest} for {options.task}")
    # Parity's networks have no heads.
    if options.task != "parity" and options.hidden_dim % options.num_heads:
        parser.error("--num-heads must divide --hidden-dim")
    divide(options, options.steps)
    return options


def _fill_model(parser, options):
    fitting = MODELS[options.task]
    options.model = options.model or fitting[0]
    if options.model not in fitting:
        parser.error(f"--model must be one of {', '.join(fitting)} for {options.task}")
    if options.task == "parity" and (options.test_lengths or options.max_offset):
        parser.error("--test-lengths and --max-offset are not for parity, whose inputs are as wide")
    if options.model == "universal_transformer":
        options.depth = options.depth or "act"
    elif options.depth:
        parser.error("--depth is for universal_transformer")


def _fill(options):
    """Defaults that depend on other options."""
    kind = "parity" if options.task == "parity" else "sequences"
    set_missing(options, _DEFAULTS[kind])
    longer = [options.train_length * 3 // 2, options.train_length * 2]
    set_missing(options, {"test_lengths": [] if kind == "parity" else longer})
    set_missing(
        options,
        {
            "max_offset": max([0, *(n - options.train_length for n in options.test_lengths)]),
            "intermediate_dim": 4 * options.hidden_dim,
            "warmup_steps": options.steps // 20,
        },
    )
