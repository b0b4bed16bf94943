"""Adaptive spans on sequences with copies from many distances."""

import sys

import numpy as np

from keras_attn import layers, patterns, scores

from .characters import attention, bits, language_model
from .experiment import Experiment

NUM_SYMBOLS, LENGTH, MAX_DISTANCE = 16, 128, 110
STEPS, ROWS, TEST_ROWS = 3000, 16, 128
RAMP = 16


def repeats(seed, count):
    """Return `count` rows of ids in which random symbols alternate with copies of earlier ones.

    A stretch of random symbols has 8 on average, and a copy 16, from a distance of at least 8 and
    below `MAX_DISTANCE` whose logarithm is uniform; one that would reach before the row is left
    out. The next symbol of a copy follows from the last ones: from two more surely than from one.
    """
    random = np.random.default_rng(seed)
    rows = random.integers(1, NUM_SYMBOLS + 1, (count, LENGTH + 1))
    for row in rows:
        start = 0
        while start <= LENGTH:
            start += random.geometric(1 / 8)
            distance = int(8 * (MAX_DISTANCE / 8) ** random.random())
            if distance <= start:
                end = start + random.geometric(1 / 16)
                for i in range(start, min(end, LENGTH + 1)):
                    row[i] = row[i - distance]
                start = end
    return rows


def run(make_pattern):
    """Return bits per symbol, the mean span of each layer and the number of keys with a weight."""

    def block(index):
        score = scores.LearnedRelative(LENGTH)
        attend = attention(pattern=make_pattern(), score=score, use_bias=False)
        return layers.TransformerBlock(attend, layers.FeedForward(256), residual="post_norm")

    model = language_model(NUM_SYMBOLS + 1, block, 2, 64)
    rows = repeats(0, STEPS * ROWS)
    model.fit(rows[:, :-1], rows[:, 1:], batch_size=ROWS, epochs=1, verbose=0)
    rows = repeats(1, TEST_ROWS)
    spans = spans_of_layers(model, rows[:, :-1])
    num_earlier = np.arange(1, LENGTH + 1)
    keys = [np.minimum(num_earlier, span + RAMP).mean() for span in spans]
    return {
        "bits": bits(model, rows, count=LENGTH // 2),
        **{f"span of layer {i + 1}": float(span.mean()) for i, span in enumerate(spans)},
        "keys": float(np.mean(keys)),
    }


def spans_of_layers(model, ids):
    """Return the spans of each layer, arrays that broadcast to (B, N, T)."""
    x, spans = model.embedding(ids), []
    for block in model.depth.blocks:
        pattern = block.attention.pattern
        if not isinstance(pattern, patterns.AdaptiveSpan):
            spans.append(np.full((1, 1, 1), LENGTH))
        elif pattern.dynamic:
            spans.append(pattern.span_summary(x)["queries"])
        else:
            spans.append(pattern.span_summary()["spans"][None, :, None])
        x = block(x)
    return spans


def adaptive(span_loss, dynamic=False):
    """Return a function that makes the pattern of a layer."""
    return lambda: patterns.AdaptiveSpan(LENGTH, RAMP, span_loss=span_loss, dynamic=dynamic)


EXPERIMENT = Experiment(
    "spans",
    "How long do spans grow where far keys help, in which layers, and what do they save?",
    "A model of 2 layers of width 64 with 4 heads, learned relative positions and `post_norm` "
    "trains 3,000 steps of Adam on 16 rows of 128 of 16 symbols. Stretches of random symbols, 8 "
    "on average, alternate with copies, 16 on average, from distances of 8 to 109, whose "
    "logarithm is uniform. Spans begin at 0 with a ramp of 16 (`dynamic`: near 1), and the number "
    "in a value's name is its `span_loss`; the span of `full` counts as 128. `bits` are those of "
    "a symbol in the second half of 128 other rows: 4 without a context. `keys` is the mean "
    "number of keys with a weight, by query and head; a layer computes as many for all heads as "
    "its longest span needs.",
    {
        "full": lambda: "causal",
        "static, 0": adaptive(0.0),
        "static, 1e-5": adaptive(1e-5),
        "static, 1e-4": adaptive(1e-4),
        "dynamic, 1e-5": adaptive(1e-5, dynamic=True),
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
