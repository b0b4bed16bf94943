"""Quality beyond the length of training, by the positions."""

import sys

from keras_attn import patterns, scores

from .characters import bits, characters, narrow_model, train, windows
from .experiment import Experiment

TRAINED = 64
LENGTHS = (64, 128, 256, 512)
STEPS, ROWS = 700, 256


def run(make_arguments):
    """Return the bits per character of the last 32 characters of texts of each length."""
    data, arguments = characters(), make_arguments()
    steps = arguments.pop("steps", STEPS)
    model = narrow_model(data.vocabulary_size, **arguments)
    train(model, data.train, TRAINED, steps)
    # All lengths are scored on the same characters.
    rows = windows(data.valid, max(LENGTHS) + 1, ROWS)
    return {f"{n} characters": bits(model, rows[:, -n - 1 :], count=32) for n in LENGTHS}


EXPERIMENT = Experiment(
    "lengths",
    "Which positions stay good beyond the length of training?",
    "Bits per character of the last 32 characters of texts of 64 to 512 characters, by a causal "
    "model of 3 layers of width 64 that trained 700 steps, or as many as its row says, on 32 texts "
    "of 64 characters of the source of Python's library. All lengths score the same characters. "
    "`sinusoidal` positions are added to the embeddings; the others belong to the layers, `alibi` "
    "and `t5_bias` as scores `DotProduct() + ALiBi()` and `DotProduct(scaled=False) + T5Bias()`; "
    "`rotary_local_64` has the pattern `Local(64)`.",
    {
        "sinusoidal": lambda: {"model_position": "sinusoidal"},
        "alibi": lambda: {"score": scores.DotProduct() + scores.ALiBi()},
        "t5_bias": lambda: {"score": scores.DotProduct(scaled=False) + scores.T5Bias()},
        "rotary": lambda: {"position": "rotary"},
        "rotary_local_64": lambda: {"position": "rotary", "pattern": patterns.Local(TRAINED)},
        "sinusoidal, 3,500 steps": lambda: {"model_position": "sinusoidal", "steps": 3500},
        "rotary, 3,500 steps": lambda: {"position": "rotary", "steps": 3500},
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
