"""A logit of each head beside those of the keys: softmax with a part of the weight unused."""

import math

import numpy as np
import oracles
import pytest
from gradients import output_and_gradients
from index_sets import CASES, NUM_HEADS, SMALL_TILES

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import LSH, AdaptiveSpan

B, T, S, H, D = 3, 11, 13, 4, 6
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.arange(S)[None] < np.array([[S], [5], [0]])
# Patterns and scores that tests/layers/test_combinations.py does not combine.
PATTERNS = {
    "nested": {"pattern": CASES["nested"][0]},
    "span": {"pattern": AdaptiveSpan(5, ramp=2)},
    "lsh": {
        "pattern": LSH(4, num_rounds=2, num_buckets=4),
        "score": "shared_qk",
        "position": "rotary",
    },
}


def built(value=X, sinks=True, **arguments):
    layer = MultiHeadAttention(NUM_HEADS, H, sinks=sinks, **arguments)
    layer.tile_sizes = SMALL_TILES
    layer.build(X.shape, value.shape)
    oracles.scramble(layer)
    return layer


def test_weights_are_shares_of_a_sum_with_the_sink():
    layer = built(CONTEXT)
    weights, sinks = oracles.attention_weights(layer), np.asarray(layer.sink_logits)
    output, scores = layer(X, CONTEXT, value_mask=REAL, return_attention_scores=True)
    expected = np.zeros((B, T, D)) + weights["output_bias"]
    for b in range(B):
        q, k, v = (
            oracles.project(x[b].astype("float64"), weights[f"{n}_kernel"], weights[f"{n}_bias"])
            for n, x in (("query", X), ("key", CONTEXT), ("value", CONTEXT))
        )
        for n, t in np.ndindex(NUM_HEADS, T):
            parts = [math.exp(oracles.scaled_dot(q[n, t], key)) for key in k[n]]
            parts = [part if real else 0.0 for part, real in zip(parts, REAL[b], strict=True)]
            shares = np.array(parts) / (math.exp(sinks[n]) + sum(parts))
            np.testing.assert_allclose(scores[b, n, t], shares, atol=1e-5)
            expected[b, t] += shares @ v[n] @ weights["output_kernel"][n]
    np.testing.assert_allclose(output, expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_every_plan_equals_the_matrix(name):
    layers = [built(implementation=how, **PATTERNS[name]) for how in ("blockwise", "dense")]
    tiles, matrix = (output_and_gradients(layer, X, value_mask=REAL[:, :T]) for layer in layers)
    oracles.check_each(tiles, matrix, atol=2e-5, scaled=True)
    names = [weight.name for weight in layers[0].trainable_weights]
    assert np.all(tiles[1 + names.index("sinks")] != 0)  # each head's has a gradient


def test_a_large_sink_takes_all_weight_and_nothing_overflows():
    layer = built(dtype="mixed_float16")
    layer.sink_logits.assign([200.0] * NUM_HEADS)
    output, scores = layer(X, X, return_attention_scores=True)
    np.testing.assert_allclose(scores, 0, atol=1e-30)
    bias = np.broadcast_to(layer.output_bias, output.shape)
    np.testing.assert_allclose(output, bias, atol=1e-3)
