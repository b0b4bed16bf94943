"""Small runs of the language model recipe."""

import recipe_runs
from recipe_runs import run as run_recipe

from recipes.language_model.training import LanguageModelRun

CONTEXT, BATCH = 12, 3
SMALL = [
    *("--num-layers", "2", "--num-heads", "2", "--hidden-dim", "6", "--intermediate-dim", "7"),
    *("--context", str(CONTEXT), "--batch-size", str(BATCH), "--steps", "9", "--epochs", "3"),
    *("--learning-rate", "0.01"),
]


def run(data, out, *options):
    return run_recipe("language_model", *SMALL, "--data-dir", data, "--out", out, *options)


def parse(*options):
    return recipe_runs.parse("language_model", *options)


def new_run(data, out, *options):
    """A run that has not started."""
    return LanguageModelRun(parse("--data-dir", data, "--out", out, *SMALL, *options))
