"""Differential attention: the formula, every plan and cache, and its limiting cases."""

import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from decoding import check_pieces

from keras_attn.attention.inputs import TileSizes
from keras_attn.layers import DifferentialAttention, MultiHeadAttention
from keras_attn.patterns import Local

B, T, N, H, D = 2, 11, 4, 3, 5
X = oracles.random(B, T, D)
REAL = np.stack([np.arange(T) < T, np.arange(T) < 0])  # a row of padding only


def built(layer_index=2, **arguments):
    arguments = {"pattern": "causal", **arguments}
    layer = DifferentialAttention(N, H, layer_index, **arguments)
    layer.tile_sizes = TileSizes(chunk_scores=1, block_scores=100, least_group=4)
    layer.build(X.shape, X.shape)
    for i, weight in enumerate(layer.weights):
        weight.assign(oracles.random(*weight.shape, seed=i, scale=0.7))
    return layer


def formula(layer, x):
    """The paper's equations for one row (T, D), head by head, in float64."""
    weights = [oracles.numpy_of(w) for w in layer.weights]
    wq, bq, wk, bk, wv, bv, wo, bo, a_1, b_1, a_2, b_2 = weights
    start = 0.8 - 0.6 * math.exp(-0.3 * layer.layer_index)
    scale = math.exp(a_1 @ b_1) - math.exp(a_2 @ b_2) + start
    future = np.triu(np.ones((len(x), len(x))), 1) > 0
    output = np.zeros((len(x), D)) + bo
    for n in range(N // 2):
        maps = []
        for head in (n, N // 2 + n):
            logits = (x @ wq[:, head] + bq[head]) @ (x @ wk[:, head] + bk[head]).T / H**0.5
            e = np.where(future, 0, np.exp(logits))
            maps.append(e / e.sum(-1, keepdims=True))
        y = (maps[0] - scale * maps[1]) @ (x @ wv[:, n] + bv[n])
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + layer.epsilon)
        output += (1 - start) * y @ wo[n]
    return output


def test_outputs_equal_the_formula():
    layer = built(3)
    expected = [formula(layer, x.astype("float64")) for x in X]
    np.testing.assert_allclose(layer(X, X), expected, atol=1e-5)


def test_weights_have_the_shapes_of_the_same_number_of_heads():
    """A pair shares a head of values of twice the size."""
    ours, plain = built(), MultiHeadAttention(N, H)
    plain.build(X.shape, X.shape)
    shapes = [tuple(w.shape) for w in ours.weights]
    assert shapes[:4] == [tuple(w.shape) for w in plain.weights[:4]]
    assert shapes[4:8] == [(D, N // 2, 2 * H), (N // 2, 2 * H), (N // 2, 2 * H, D), (D,)]
    assert shapes[8:] == [(H,)] * 4
    assert sum(map(np.prod, shapes[:8])) == sum(np.prod(w.shape) for w in plain.weights)


def gradients(layer, **call):
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, x, **call)
        loss = tf.reduce_sum(output * tf.cos(tf.range(float(D))))
    found = tape.gradient(loss, [x, *(w.value for w in layer.weights)])
    return [output, *found]


def test_plans_equal_the_matrix_with_gradients():
    ways = (gradients(built(implementation=way), value_mask=REAL) for way in ("blockwise", "dense"))
    oracles.check_each(*ways, atol=2e-5, scaled=True)


def test_a_query_without_a_key_gets_the_output_bias_only():
    layer = built()
    output = layer(X, X, value_mask=REAL)
    np.testing.assert_array_equal(output[1], np.tile(layer.output_bias, (T, 1)))


def test_equal_maps_leave_their_share():
    """With A_1 = A_2 the head is (1 - l) A V before the norm, so any l below 1 gives the same."""
    layer = built(layer_index=0, use_bias=False)
    for kernel in (layer.query_kernel, layer.key_kernel):
        half = oracles.numpy_of(kernel)[:, : N // 2]
        kernel.assign(np.concatenate([half, half], axis=1))
    for vector in layer.scale_vectors:
        vector.assign(np.zeros(H))
    before = layer(X, X)
    layer.scale_vectors[0].assign([-0.4, 0, 0])
    layer.scale_vectors[1].assign([1.0, 0, 0])
    np.testing.assert_allclose(float(layer.scale()), 0.2 + math.exp(-0.4) - 1, atol=1e-6)
    np.testing.assert_allclose(layer(X, X), before, atol=1e-3)


def test_decoding_with_a_cache_equals_the_whole_pass():
    options = {"num_key_value_heads": 2, "position": "rotary"}
    layer = DifferentialAttention(N, 4, 1, pattern=Local(3), **options)
    layer.build(X.shape, X.shape)
    check_pieces(layer, X, (4, 5, 6, T), T)


def test_context_in_a_cache():
    layer, context = built(pattern="dense"), oracles.random(B, 7, D)
    cached, _ = layer(X, cache=layer.context_cache(context))
    np.testing.assert_allclose(cached, layer(X, context), atol=1e-5)


def test_returned_scores_are_both_maps():
    output, scores = built()(X, X, return_attention_scores=True)
    assert scores.shape == (B, N, T, T)
    np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-6)
    np.testing.assert_array_equal(output, built()(X, X))


def test_mixed_bfloat16():
    layer = built(dtype="mixed_bfloat16")
    difference = oracles.numpy_of(layer(X, X)) - oracles.numpy_of(built()(X, X))
    assert np.abs(difference).mean() < 0.02


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        ((3, 4, 0), {}, "`num_heads` must be an even number.*num_heads=3"),
        ((4, 4, -1), {}, "`layer_index`.*layer_index=-1"),
        ((2, 4, 0), {"num_key_value_heads": 1}, "`num_key_value_heads` must be an even"),
    ],
)
def test_invalid_arguments_raise(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        DifferentialAttention(*arguments, **options)
