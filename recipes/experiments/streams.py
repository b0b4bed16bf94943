"""Quality on a long stream, by the keys that a model keeps."""

import sys

from keras_attn import patterns

from .characters import bits, characters, three_layers, train, windows
from .experiment import Experiment

TRAINED = 128
LENGTHS = (128, 384, 1024)
STEPS, ROWS = 700, 128


def run(make_pattern):
    """Return the bits per character of the last 64 characters of texts of each length."""
    data = characters()
    trained = three_layers(data.vocabulary_size, position="rotary")
    train(trained, data.train, TRAINED, STEPS)
    model = three_layers(data.vocabulary_size, position="rotary", pattern=make_pattern())
    rows = windows(data.valid, max(LENGTHS) + 1, ROWS)
    model(rows[:1, :-1])
    model.set_weights(trained.get_weights())
    return {f"{n} characters": bits(model, rows[:, -n - 1 :], count=64) for n in LENGTHS}


EXPERIMENT = Experiment(
    "streams",
    "Which keys must a model that reads a stream keep?",
    "A model of 3 layers of width 64 with rotary positions trains 700 steps on 32 texts of 128 "
    "characters, each with all earlier keys. Then its pattern is replaced, and the last 64 "
    "characters of longer texts are scored. `window` keeps 128 keys; the two with first keys keep "
    "4 and 124: `sinks` at the distances within the cache, `true_distances` at their own.",
    {
        "all_keys": patterns.Causal,
        "window": lambda: patterns.Local(128),
        "sinks": lambda: patterns.Sinks(4, 124),
        "true_distances": lambda: patterns.Local(124) | patterns.Global(4, causal=True),
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
