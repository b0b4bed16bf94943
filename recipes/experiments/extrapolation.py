"""Answers to longer sequences than those of training, by what might carry over to them."""

import sys
import tempfile

import numpy as np

from ..algorithmic.options import RecipeOptions
from ..algorithmic.sequence_run import SequenceRun
from .experiment import Experiment

STEPS = {"reverse": 5000, "addition": 8000}


def run(arguments):
    """Return the shares of right answers of trained lengths, of 1.5 times and of twice the longest.

    `arguments` are options of `recipes.algorithmic`.
    """
    first_seed = np.random.randint(2**16)
    return {
        f"{task}, {column}": share
        for task in STEPS
        for column, share in _scores(task, arguments, first_seed).items()
    }


def _scores(task, arguments, seed):
    with tempfile.TemporaryDirectory() as folder:
        own = ["--task", task, "--out", folder, "--seed", seed, "--steps", STEPS[task]]
        training = SequenceRun(RecipeOptions.parse([*map(str, own), *arguments]))
        training.train()
        values = [result["value"] for result in training.evaluate().values()]
        names = "trained", "1.5 times", "twice"
        right = training.by_length[training.longest]["token_accuracy"]
        return {**dict(zip(names, values, strict=True)), "symbols at twice": right}


EXPERIMENT = Experiment(
    "extrapolation",
    "What lets a model reverse and add longer sequences than those of its training?",
    "A `universal_transformer` of at most 4 steps of width 64 trains 5,000 steps of 64 sequences "
    "to reverse digits, and one 8,000 steps to add numbers, with up to 10 symbols in each. Tests "
    "have up to 10, 15 and 20. The shares are those of whole answers that greedy decoding has "
    "right, and at last of symbols that are right after the right ones before them. `ACT` has the "
    "defaults of `recipes.algorithmic`: the steps are learned, and each row begins at a random "
    "position up to 10. `four steps` always takes four. `no offsets` begins at the first position. "
    "`curriculum` begins with the shortest sequences, and has all lengths from the middle of the "
    "training on. `twice as long` trains with up to 20 symbols and is tested at 30 and 40. "
    "`stack` has four layers of their own weights, four times as many.",
    {
        "ACT": [],
        "four steps": ["--depth", "recurrent"],
        "ACT, no offsets": ["--max-offset", "0"],
        "ACT, curriculum": ["--curriculum", "0.5"],
        "ACT, twice as long": ["--train-length", "20"],
        "stack": ["--model", "transformer"],
    },
    run,
    digits=3,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
