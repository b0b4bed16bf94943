"""
Title: A pattern of your own
Author: keras_attn developers
Date created: 2026/11/23
Last modified: 2026/11/27
Description: Write a sparse attention pattern, compute it fast, and prove that it is right.
"""

import argparse
import pathlib
import time

import keras
import numpy as np

from keras_attn import layers, patterns, testing, viz

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".", type=pathlib.Path, help="folder for the picture")
out = parser.parse_known_args()[0].out
out.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)

"""
## The rule

A pattern says which keys a query may attend to: `mask_mod(i, j)` is True where the query at
position i may attend to the key at j. Suppose that we read the temperature of every hour. Of the
last week the same hour of each day matters, of the last half day every hour. The library has
windows, `Local(12)`; "the same hour" takes one line. A registered pattern is saved with the layer
that holds it.
"""


@keras.saving.register_keras_serializable(package="tutorials")
class SameHour(patterns.Pattern):
    def __init__(self, hours):
        self.hours = hours

    def mask_mod(self, i, j):
        return (i - j) % self.hours == 0


"""
## The fast computation

From a rule alone the library cannot tell which keys it may leave out, so it computes all. Combine
the rule with a pattern that computes few keys: `p & q` computes those of the sparser pattern and
masks the pairs that the other excludes; `p | q` computes those of both under one softmax.
"""


def recent_or_same_hour(recent, hours, past):
    return patterns.Local(recent) | (SameHour(hours) & patterns.Local(past))


pattern = recent_or_same_hour(recent=12, hours=24, past=168)
for name, p in [("the rule alone", SameHour(24)), ("the composed pattern", pattern)]:
    print(f"Of 4096 keys, {name} computes {p.keys_per_query(4096)} for a query")

"""
## The proof

`check_attention` compares a layer with the formula in loops and checks masks, leaks, gradients,
precision, compilation and saving. Its sequences have 11 positions, so the windows here are shorter.
With `implementation="blockwise"` it checks the fast computation. The second report shows that a
check can fail: it expects a window of three keys where the layer has two.
"""

short = recent_or_same_hour(recent=2, hours=3, past=8)
layer = layers.MultiHeadAttention(2, 4, pattern=short, implementation="blockwise")
print(testing.check_attention(layer, slow=False))
other = recent_or_same_hour(recent=3, hours=3, past=8)
report = testing.check_attention(layer, pattern=other, only=["formula"])
print(f"Against another pattern: {len(report.defects)} defects. {report.defects[0]}")

"""
## The time

One layer, computed from the matrix of all scores and from the blocks of the composed pattern. The
time of the matrix grows with the square of the length, that of the pattern with the length.
"""


def model_of(implementation):
    x = keras.Input((None, 64))
    layer = layers.MultiHeadAttention(2, 32, pattern=pattern, implementation=implementation)
    return keras.Model(x, layer(x, x))


def run(models, x):
    """Call the models in turn. Return their outputs, and the seconds of the fastest of 5 calls."""
    outputs = [model.predict_on_batch(x) for model in models]  # the first call compiles
    seconds = [[] for _ in models]
    for _ in range(5):
        for model, times in zip(models, seconds):
            start = time.perf_counter()
            model.predict_on_batch(x)
            times.append(time.perf_counter() - start)
    return outputs, [min(times) for times in seconds]


dense, composed = model_of("dense"), model_of("blockwise")
composed.set_weights(dense.get_weights())
for length in (1024, 2048, 4096):
    x = np.random.normal(size=(1, length, 64)).astype("float32")
    (expected, output), (slow, fast) = run([dense, composed], x)
    print(
        f"{length} hours: dense {1000 * slow:.0f} ms, composed {1000 * fast:.0f} ms, "
        f"{slow / fast:.1f} times as fast, outputs differ by {np.abs(output - expected).max():.0e}"
    )

"""
## The picture

A row is a query, a column a key: the band is the last half day, each line the same hour of a day.
"""

viz.plot_pattern(pattern, 240).savefig(out / "own_pattern.png", dpi=80)
