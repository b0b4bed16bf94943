"""`Reversible` beside its twin, which keeps all activations."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from depth.twins import in_turn

from keras_attn.depth import Reversible
from keras_attn.depth import reversible as module
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.patterns import LSH
from keras_attn.testing import check_layer

B, T, D = 2, 7, 6


def stack(num_layers=5, dropout=0.3, join="mean", **attention):
    """The same weights and seeds at each call."""
    keras.utils.set_random_seed(0)

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 3, dropout=dropout, **attention),
            FeedForward(11, dropout=dropout),
            residual="pre_norm",
            dropout=dropout,
        )

    layer = Reversible(block, num_layers, join=join)
    layer.build((None, None, D))
    return layer


def loss_and_gradients(layer, x, way, dtype="float32"):
    weights = np.cos(np.arange(layer.compute_output_spec(keras.KerasTensor(x.shape)).shape[-1]))

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, training=True)
            loss = tf.reduce_sum(output * tf.constant(weights, output.dtype))
        return loss, *tape.gradient(loss, [x, *(w.value for w in layer.trainable_variables)])

    if way != "eager":
        run = tf.function(run, jit_compile=way == "xla")
    return [np.asarray(g) for g in run(tf.constant(x, dtype))]


@pytest.mark.parametrize("way", ["eager", "graph", "xla"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "causal"},
        {"pattern": "causal", "join": "concatenate"},
        {"pattern": LSH(2, num_rounds=2), "score": "shared_qk", "plan": "tiles"},
    ],
    ids=["causal", "concatenate", "lsh"],
)
def test_gradients_equal_those_of_stored_activations(way, arguments, monkeypatch):
    x = oracles.random(B, T, D)
    found = loss_and_gradients(stack(**arguments), x, way)
    monkeypatch.setattr(module, "couple", in_turn)
    wanted = loss_and_gradients(stack(**arguments), x, way)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * max(1.0, np.abs(other).max()))


def test_gradients_in_float64(monkeypatch):
    keras.config.set_dtype_policy("float64")
    try:
        x = oracles.random(B, T, D).astype("float64")
        found = loss_and_gradients(stack(), x, "graph", "float64")
        monkeypatch.setattr(module, "couple", in_turn)
        wanted = loss_and_gradients(stack(), x, "graph", "float64")
    finally:
        keras.config.set_dtype_policy("float32")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9 * max(1.0, np.abs(other).max()))


def test_two_streams_by_hand():
    layer = stack(num_layers=2, dropout=0.0)
    x = oracles.random(B, T, D)
    first = second = x
    for block in layer.blocks:
        for residual, sublayer in block.sublayers(x)[0]:
            first, second = second, first + np.asarray(sublayer(residual.before(second), None))
    expected = layer.norm((first + second) / 2)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_twelve_layers_train_as_their_twin(monkeypatch):
    x, y = oracles.random(16, T, D), oracles.random(16, T, D, seed=1)

    def losses():
        layer = stack(num_layers=12, dropout=0.1)
        inputs = keras.Input((T, D))
        model = keras.Model(inputs, layer(inputs))
        model.compile(keras.optimizers.Adam(1e-3), "mse")
        history = model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0)
        return history.history["loss"]

    found = losses()
    monkeypatch.setattr(module, "couple", in_turn)
    np.testing.assert_allclose(found, losses(), rtol=1e-3)
    assert found[-1] < found[0]


@pytest.mark.parametrize("join", ["mean", "concatenate"])
def test_conformance(join):
    check_layer(stack(2, 0.0, join), (B, T, D)).raise_if_any()


def test_errors():
    def post(index):
        return TransformerBlock(MultiHeadAttention(2, 3), FeedForward(5))

    with pytest.raises(ValueError, match="`block`.*'pre_norm'.*PostNorm"):
        Reversible(post, 2)
    with pytest.raises(ValueError, match="`join`"):
        stack(join="sum")
    with pytest.raises(ValueError, match="`memory`.*`return_hidden_states`"):
        stack()(oracles.random(B, T, D), return_hidden_states=True)
