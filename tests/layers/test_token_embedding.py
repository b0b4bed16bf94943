import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from other_backend import needs_jax, run_on

from keras_attn.layers import TokenEmbedding

V, D = 13, 7
IDS = np.array([[5, 12, 1, 0], [3, 0, 2, 2]])
HIDDEN = oracles.random(2, 4, D)


def built(**arguments):
    layer = TokenEmbedding(V, D, **arguments)
    layer.build()
    oracles.scramble(layer)
    return layer


def test_output_equals_the_formula():
    """Scaled by sqrt(D) on the way in, and only there."""
    layer = built()
    table = oracles.numpy_of(layer.table)
    np.testing.assert_allclose(layer(IDS), math.sqrt(D) * table[IDS], atol=1e-6)
    np.testing.assert_allclose(layer.logits(HIDDEN), HIDDEN @ table.T, atol=1e-5)
    np.testing.assert_array_equal(built(scaled=False)(IDS), layer.table.numpy()[IDS])


def test_the_tied_gradient_is_the_sum_of_both_uses():
    layer = built()
    weights = tf.constant(oracles.random(2, 4, V))

    def loss(inward, outward):
        return tf.reduce_sum(weights * outward.logits(inward(IDS)) ** 2)

    with tf.GradientTape() as tape:
        value = loss(layer, layer)
    tied = tf.convert_to_tensor(tape.gradient(value, layer.table.value))
    inward, outward = built(), built()
    with tf.GradientTape() as tape:
        value = loss(inward, outward)
    parts = tape.gradient(value, [inward.table.value, outward.table.value])
    parts = [tf.convert_to_tensor(part).numpy() for part in parts]
    np.testing.assert_allclose(tied, parts[0] + parts[1], rtol=1e-4, atol=1e-5)
    assert all(np.any(part != 0) for part in parts)


def test_default_table_gives_unit_variance():
    layer = TokenEmbedding(500, 64)
    variance = np.var(layer(np.arange(500)[None]))
    assert abs(variance - 1) < 5 * math.sqrt(2 / (500 * 64))


def test_padding_makes_the_implicit_mask():
    np.testing.assert_array_equal(built()(IDS)._keras_mask, IDS != 0)
    assert getattr(built(pad_id=None)(IDS), "_keras_mask", None) is None


def test_logits_pass_on_the_mask_of_their_input():
    layer = built()
    logits = layer.logits(keras.layers.Dropout(0.5)(layer(IDS)))
    np.testing.assert_array_equal(logits._keras_mask, IDS != 0)
    assert getattr(layer.logits(HIDDEN), "_keras_mask", None) is None


def test_integer_ids_of_any_dtype():
    layer = built()
    for dtype in ("int64", "uint8"):
        np.testing.assert_array_equal(layer(IDS.astype(dtype)), layer(IDS))


def test_a_cap_bounds_the_logits_only():
    plain, capped = built(), built(logits_cap=0.5)
    expected = 0.5 * np.tanh(np.asarray(plain.logits(HIDDEN)) / 0.5)
    np.testing.assert_allclose(capped.logits(HIDDEN), expected, atol=1e-6)
    np.testing.assert_array_equal(capped(IDS), plain(IDS))


CONSTANT_IDS = """
import json, jax, numpy as np
from keras_attn.layers import TokenEmbedding
layer, ids = TokenEmbedding(13, 7), jax.numpy.array([[1, 12]])
layer.build((None, None))
output = jax.jit(lambda: layer(ids))()
outside = jax.jit(layer)(jax.numpy.array([[-1, 13]]))
try:
    layer(np.array([[2**32 + 5]]))
    error = None
except ValueError as caught:
    error = "must be ids of the vocabulary" in str(caught)
equal = np.array_equal(output, layer(ids))
print(json.dumps([bool(equal), bool(np.isnan(outside).all()), error]))
"""


@pytest.mark.slow
@needs_jax
def test_jax_compiles_with_ids_that_are_constants_and_wraps_none():
    """An id outside the table gives NaN where it has no value yet."""
    assert run_on("jax", CONSTANT_IDS) == [True, True, True]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: TokenEmbedding(0, D), "`vocabulary_size`.*vocabulary_size=0"),
        (lambda: TokenEmbedding(V, 0), "`hidden_dim`.*hidden_dim=0"),
        (lambda: TokenEmbedding(V, 1.5), "`hidden_dim`.*hidden_dim=1.5"),
        (
            lambda: TokenEmbedding(V, D, logits_cap=0),
            "`logits_cap` must be .* above 0.*logits_cap=0",
        ),
        (lambda: built()(IDS + 0.0), "`token_ids` must be integers.*float"),
        (lambda: built()(np.array([[1, V, 2]])), rf"ids of the vocab.*\[0, {V}\).*from 1 to {V}\."),
        (lambda: built()(np.array([[3, -1]])), "`token_ids` must be ids.*from -1 to 3"),
        (lambda: built().logits(HIDDEN[..., 1:]), r"`x`.*7.*\(2, 4, 6\)"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
