"""Quality on a long stream, by the keys that a model keeps."""

import functools
import sys

import numpy as np

from keras_attn import patterns

from .characters import bits, characters, narrow_model, train, windows
from .experiment import Experiment

TRAINED = 128
LENGTHS = (128, 384, 1024)
STEPS, ROWS = 700, 128  # STEPS is for 3 layers; other depths train in proportion


def run(case):
    """Return the bits per character of the last 64 characters of texts of each length.

    A case is (num_layers, make_pattern).
    """
    num_layers, make_pattern = case
    weights = trained_weights(num_layers, np.random.randint(2**31))
    data = characters()
    model = _model(data, num_layers, make_pattern())
    rows = windows(data.valid, max(LENGTHS) + 1, ROWS)
    model(rows[:1, :-1])
    model.set_weights(weights)
    return {f"{n} characters": bits(model, rows[:, -n - 1 :], count=64) for n in LENGTHS}


@functools.lru_cache(maxsize=1)
def trained_weights(num_layers, drawn):
    """Train with all earlier keys and return the weights.

    `drawn` differs between seeds only: the patterns of one depth and seed share a training.
    """
    data = characters()
    model = _model(data, num_layers, "causal")
    train(model, data.train, TRAINED, STEPS * num_layers // 3)
    return model.get_weights()


def _model(data, num_layers, pattern):
    return narrow_model(data.vocabulary_size, num_layers, position="rotary", pattern=pattern)


EXPERIMENT = Experiment(
    "streams",
    "Which keys must a model that reads a stream keep?",
    "A model of 3 layers of width 64 with rotary positions trains 700 steps on 32 texts of 128 "
    f"characters, each with all earlier keys; one of 8 layers trains {STEPS * 8 // 3:,}. Then its "
    "pattern is replaced, and the last 64 characters of longer texts are scored. `window` keeps "
    "128 keys; the two with first keys keep 4 and 124: `sinks` at the distances within the cache, "
    "`true_distances` at their own.",
    {
        "all_keys": (3, patterns.Causal),
        "window": (3, lambda: patterns.Local(128)),
        "sinks": (3, lambda: patterns.Sinks(4, 124)),
        "true_distances": (3, lambda: patterns.Local(124) | patterns.Global(4, causal=True)),
        "8 layers, all keys": (8, patterns.Causal),
        "8 layers, window": (8, lambda: patterns.Local(128)),
        "8 layers, sinks": (8, lambda: patterns.Sinks(4, 124)),
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
