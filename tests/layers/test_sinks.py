"""A logit of each head beside those of the keys: softmax with a part of the weight unused."""

import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from decoding import check_pieces
from index_sets import CASES, NUM_HEADS, SMALL_TILES
from marks import slow_but
from other_backend import needs_jax, run_on

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import LSH, AdaptiveSpan, Local

B, T, S, H, D = 3, 11, 13, 4, 6
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.arange(S)[None] < np.array([[S], [5], [0]])
# Patterns and scores that tests/layers/test_combinations.py does not combine.
PATTERNS = {
    "nested": {"pattern": CASES["nested"][0]},
    "span": {"pattern": AdaptiveSpan(5, ramp=2)},
    "lsh": {"pattern": LSH(4, num_rounds=2, num_buckets=4), "score": "shared_qk"},
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


def results(layer, **call):
    """The output, and the gradients of the input and the weights."""
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, x, value_mask=REAL[:, :T], **call)
        loss = tf.reduce_sum(output * tf.cos(tf.range(float(D))))
    sources = [x, *(weight.value for weight in layer.trainable_weights)]
    return [output, *tape.gradient(loss, sources, unconnected_gradients="zero")]


@pytest.mark.parametrize("name", slow_but(["span"], PATTERNS))
def test_every_plan_equals_the_matrix(name):
    layers = [built(implementation=how, **PATTERNS[name]) for how in ("blockwise", "dense")]
    tiles, matrix = (results(layer) for layer in layers)
    oracles.check_each(tiles, matrix, atol=2e-5, scaled=True)
    names = [weight.name for weight in layers[0].trainable_weights]
    assert np.all(np.asarray(tiles[1 + names.index("sinks")]) != 0)  # each head's has a gradient


def test_without_a_sink_attention_is_plain():
    """A logit of minus infinity; queries without keys, here of the last row, keep zeros."""
    options = {"pattern": CASES["local around"][0], "implementation": "blockwise"}
    layer, plain = built(**options), built(sinks=False, **options)
    plain.set_weights(layer.get_weights()[:-1])
    layer.sink_logits.assign([-np.inf] * NUM_HEADS)
    found, expected = results(layer, return_attention_scores=False), results(plain)
    sink_gradient = found.pop()
    oracles.check_each(found, expected, atol=1e-6)
    np.testing.assert_array_equal(sink_gradient, 0)
    call = {"value_mask": REAL[:, :T], "return_attention_scores": True}
    np.testing.assert_allclose(layer(X, X, **call)[1], plain(X, X, **call)[1], atol=1e-6)


def test_a_large_sink_takes_all_weight_and_nothing_overflows():
    layer = built(dtype="mixed_float16")
    layer.sink_logits.assign([200.0] * NUM_HEADS)
    output, scores = layer(X, X, return_attention_scores=True)
    np.testing.assert_allclose(scores, 0, atol=1e-30)
    bias = np.broadcast_to(layer.output_bias, output.shape)
    np.testing.assert_allclose(output, bias, atol=1e-3)


def test_decoding_with_a_cache_equals_the_whole_pass():
    layer = built(pattern=Local(3), num_key_value_heads=1)
    check_pieces(layer, X, (4, 5, 6, T), T, atol=2e-5)


ON_JAX = """
import json, jax, numpy as np, keras
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Local

draw, found = np.random.default_rng(0).standard_normal, []
x = draw((2, 11, 6)).astype("float32")
for how in ("blockwise", "dense"):
    options = {"sinks": True, "use_gate": True, "qk_norm": "rms_norm", "position": "rotary"}
    layer = MultiHeadAttention(3, 4, pattern=Local(3), implementation=how, **options)
    layer.build(x.shape)
    if not found:
        first = [draw(w.shape) for w in layer.weights]
    layer.set_weights(first)

    def loss(weights):
        output, _ = layer.stateless_call(weights, [], x, x)
        return keras.ops.sum(output * keras.ops.cos(keras.ops.arange(6.0)))

    weights = [weight.value for weight in layer.trainable_variables]
    value, gradients = jax.jit(jax.value_and_grad(loss))(weights)
    found.append([value, *gradients])
differences = [float(abs(a - b).max() / max(1, abs(b).max())) for a, b in zip(*found)]
smallest = min(float(abs(gradient).max()) for gradient in gradients)
print(json.dumps([max(differences), smallest]))
"""


@needs_jax
@pytest.mark.slow
def test_sinks_gate_and_norms_on_jax():
    difference, smallest = run_on("jax", ON_JAX)
    assert difference < 2e-5 and smallest > 0
