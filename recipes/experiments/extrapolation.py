"""Answers to longer sequences than those of training, by the model and its training."""

import sys
import tempfile

import numpy as np

from ..algorithmic.options import RecipeOptions
from ..algorithmic.sequence_run import SequenceRun
from .experiment import Experiment

TASKS = {
    "reversed": ["--task", "reverse", "--steps", "5000"],
    "sums": ["--task", "addition", "--steps", "8000"],
}
VARIANTS = {
    "ACT": [],
    "four steps": ["--depth", "recurrent"],
    "ACT, no offsets": ["--max-offset", "0"],
    "ACT, curriculum": ["--curriculum", "0.5"],
    "ACT, up to 20": ["--train-length", "20"],
    "stack": ["--model", "transformer"],
}
COLUMNS = "trained lengths", "1.5 times", "twice"


def run(options):
    """Return the shares of right answers by length, for options of `recipes.algorithmic`."""
    seed = np.random.randint(2**16)  # that of the experiment has seeded NumPy
    with tempfile.TemporaryDirectory() as folder:
        recipe_options = RecipeOptions.parse([*options, "--out", folder, "--seed", str(seed)])
        training = SequenceRun(recipe_options)
        training.train()
        shares = [result["value"] for result in training.evaluate().values()]
        symbols = training.by_length[training.longest]["token_accuracy"]
        return {**dict(zip(COLUMNS, shares, strict=True)), "symbols at twice": symbols}


EXPERIMENT = Experiment(
    "extrapolation",
    "What lets a model reverse and add longer sequences than those of its training?",
    "A `universal_transformer` of at most 4 steps of width 64 trains 5,000 steps of 64 sequences "
    "to reverse digits, or 8,000 to add numbers, with up to 10 symbols in each. Tests have up to "
    "10, exactly 15 and exactly 20. The shares are those of whole answers that are right; the last "
    "column is that of symbols, the end mark included, each after the right ones before it. `ACT` "
    "has the defaults of `recipes.algorithmic`: the steps are learned, and each row begins at a "
    "random position up to 10. `four steps` always takes four. `no offsets` begins at the first "
    "position. With a `curriculum` the longest length grows in the first half of the training. "
    "`up to 20` trains with up to 20 symbols and is tested with 30 and 40. `stack` has four layers "
    "of their own weights, four times as many.",
    {
        f"{task}: {variant}": [*TASKS[task], *VARIANTS[variant]]
        for task in TASKS
        for variant in VARIANTS
    },
    run,
    digits=3,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
