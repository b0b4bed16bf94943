"""The command line of the recipe, and what of it makes a run what it is."""

import argparse

from ..options import add_run_options, check_at_least, check_learning_rate
from .agents import AGENTS

SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 64, "intermediate_dim": 128, "memory": 64}
SETTINGS = (
    *("env", *SIZES, "num_envs", "rollout", "passes", "stretches", "epochs", "learning_rate"),
    *("discount", "trace", "clip_norm", "entropy_weight", "precision", "seed"),
)


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.control",
        description="Trains actors with different memories in one environment and draws their "
        "returns. Started again with the same --out, it goes on where it stopped.",
    )
    add = parser.add_argument
    add("--env", default="popgym-RepeatPreviousEasy-v0", help="default: %(default)s")
    add("--models", nargs="+", default=list(AGENTS), choices=AGENTS, help="default: all")
    add("--seeds", type=int, default=3, help="runs of each model (default: %(default)s)")
    add("--out", default="runs/control", help="default: %(default)s")
    for name, value in SIZES.items():
        add(f"--{name.replace('_', '-')}", type=int, default=value, help="default: %(default)s")
    add("--num-envs", type=int, default=16, help="at a time (default: %(default)s)")
    add("--rollout", type=int, default=64, help="steps between trainings (default: %(default)s)")
    add("--passes", type=int, default=4, help="trainings by each (default: %(default)s)")
    add("--steps", type=int, default=1_000_000, help="of all environments (default: %(default)s)")
    add("--epochs", type=int, default=50, help="equal parts (default: %(default)s)")
    add("--learning-rate", type=float, default=1e-3, help="default: %(default)s")
    add("--discount", type=float, default=0.95, help="default: %(default)s")
    add("--trace", type=float, default=0.9, help="default: %(default)s")
    add("--clip-norm", type=float, default=0.5, help="of the gradient (default: %(default)s)")
    add("--entropy-weight", type=float, default=0.01, help="default: %(default)s")
    add("--episodes", type=int, default=200, help="of the test (default: %(default)s)")
    add_run_options(add)
    options = parser.parse_args(arguments)
    check_at_least(
        *(parser, options, 1, *SIZES, "seeds", "num_envs", "rollout", "passes", "steps"),
        *("epochs", "episodes", "checkpoint_steps", "export_version"),
    )
    check_learning_rate(parser, options)
    for name in ("discount", "trace"):
        if not 0 <= getattr(options, name) <= 1:
            parser.error(f"--{name} must be between 0 and 1")
    if options.hidden_dim % options.num_heads:
        parser.error("--num-heads must divide --hidden-dim")
    stretches = -(-options.steps // (options.num_envs * options.rollout))
    options.epochs = min(options.epochs, stretches)
    options.stretches = -(-stretches // options.epochs)
    return options


def settings(options):
    """What must not change from one start to the next."""
    return {name: getattr(options, name) for name in SETTINGS}
