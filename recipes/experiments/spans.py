"""Adaptive spans on texts that repeat themselves at many distances."""

import numpy as np

from keras_attn import layers, patterns, scores

from .characters import bits, language_model
from .experiment import Experiment

SYMBOLS, LENGTH, FARTHEST = 16, 128, 110
STEPS, ROWS, TESTED = 3000, 16, 128
RAMP = 16


def repeats(seed, count):
    """Return `count` rows of ids in which new symbols and copies take turns.

    A stretch of new symbols has 8 on average. A copy has 16, from a distance of 8 to `FARTHEST`
    whose logarithm is uniform: its first symbol cannot be predicted, all others can.
    """
    random = np.random.default_rng(seed)
    rows = random.integers(1, SYMBOLS + 1, (count, LENGTH + 1))
    for row in rows:
        start = 0
        while start <= LENGTH:
            start += random.geometric(1 / 8)
            distance = int(8 * (FARTHEST / 8) ** random.random())
            if distance <= start:
                end = start + random.geometric(1 / 16)
                for i in range(start, min(end, LENGTH + 1)):
                    row[i] = row[i - distance]
                start = end
    return rows


def run(make_pattern):
    """Return bits per symbol, the mean span of each layer and the keys that a query reads."""

    def block(index):
        attention = layers.MultiHeadAttention(
            *(4, 16), pattern=make_pattern(), score=scores.LearnedRelative(LENGTH), use_bias=False
        )
        return layers.TransformerBlock(attention, layers.FeedForward(256), residual="post_norm")

    model = language_model(SYMBOLS + 1, block, 2, 64)
    rows = repeats(0, STEPS * ROWS)
    model.fit(rows[:, :-1], rows[:, 1:], batch_size=ROWS, epochs=1, verbose=0)
    rows = repeats(1, TESTED)
    found = {"bits": bits(model, rows, count=LENGTH // 2)}
    spans = spans_of_layers(model, rows[:, :-1])
    found |= {f"span of layer {i + 1}": float(span.mean()) for i, span in enumerate(spans)}
    earlier = np.arange(1, LENGTH + 1)
    reads = [np.minimum(earlier, span + RAMP).mean() for span in spans]
    return {**found, "keys": float(np.mean(reads))}


def spans_of_layers(model, ids):
    """Return the spans of each layer, arrays that broadcast to (B, N, T)."""
    x, spans = model.embedding(ids), []
    for block in model.depth.blocks:
        pattern = block.attention.pattern
        if not isinstance(pattern, patterns.AdaptiveSpan):
            found = np.full((1, 1, 1), LENGTH)
        elif pattern.dynamic:
            found = pattern.span_summary(x)["queries"]
        else:
            found = pattern.span_summary()["spans"][None, :, None]
        spans.append(found)
        x = block(x)
    return spans


def adaptive(span_loss, dynamic=False):
    return lambda: patterns.AdaptiveSpan(LENGTH, RAMP, span_loss=span_loss, dynamic=dynamic)


EXPERIMENT = Experiment(
    "spans",
    "Do spans grow where far keys help, and in which layers?",
    "A model of 2 layers of width 64 with 4 heads trains 3,000 steps on 16 rows of 128 symbols, of "
    "which two thirds are copies from distances of 8 to 110. Spans begin at 0, with a ramp of 16. "
    "`full` has no spans; the others have the loss of their name for each token of span. `bits` "
    "are those of a symbol in the second half of a row, 4.09 without any context. `keys` is the "
    "mean number that a query of a head reads, ramp included: the cost of scores and of sums of "
    "values is in proportion to it.",
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
    EXPERIMENT.main()
