import keras
import numpy as np
import oracles
import pytest

from keras_attn.layers import FeedForward
from keras_attn.ops.activations import gelu_tanh

B, T, D, F = 2, 5, 7, 11
X = oracles.random(B, T, D)
ACTIVATIONS = {
    "relu": ("relu", lambda value: max(value, 0.0)),
    "exact gelu": ("gelu", oracles.gelu),
    "tanh gelu": (gelu_tanh, oracles.gelu_tanh),
}


def built(**arguments):
    layer = FeedForward(F, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


@pytest.mark.parametrize("activation, function", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_oracle(activation, function):
    layer = built(activation=activation)
    assert [w.shape for w in layer.weights] == [(D, F), (F,), (F, D), (D,)]
    weights = dict(zip(("w1", "b1", "w2", "b2"), map(oracles.numpy_of, layer.weights), strict=True))
    expected = oracles.feed_forward(X, weights, function)
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


def test_positions_do_not_meet():
    layer = built()
    changed = X.copy()
    changed[:, 2] += 1
    same = [0, 1, 3, 4]
    np.testing.assert_array_equal(layer(changed)[:, :2], layer(X)[:, :2])
    np.testing.assert_allclose(np.asarray(layer(changed))[:, same], np.asarray(layer(X))[:, same])
    assert np.all(np.asarray(layer(changed))[:, 2] != np.asarray(layer(X))[:, 2])


def test_dropout_falls_on_the_hidden_layer_in_training_only():
    layer = built(dropout=0.9)
    np.testing.assert_array_equal(layer(X), layer(X, training=False))
    dropped = np.asarray(layer(np.zeros((500, 1, D), "float32") + X[0, 0], training=True))[:, 0]
    # Each of the F hidden units is there or not, which leaves few values and the mean.
    assert len(np.unique(np.round(dropped, 4), axis=0)) < 2**F
    error = dropped.std(axis=0) / np.sqrt(len(dropped))
    assert np.all(np.abs(dropped.mean(axis=0) - np.asarray(layer(X))[0, 0]) < 5 * error)
    assert np.all(error > 0)


def test_initializers():
    layer = FeedForward(F, kernel_initializer="ones", output_initializer="zeros")
    layer.build(X.shape)
    w1, _, w2, _ = (w.numpy() for w in layer.weights)
    assert np.all(w1 == 1) and np.all(w2 == 0)
    layer = FeedForward(D, kernel_initializer=keras.initializers.RandomNormal())
    layer.build(X.shape)
    assert np.any(layer.weights[0].numpy() != layer.weights[2].numpy())


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float16"])
def test_dtype_policies(policy):
    reference, layer = built(), built(dtype=policy)
    compute = keras.dtype_policies.get(policy).compute_dtype
    output = layer(X)
    assert keras.backend.standardize_dtype(output.dtype) == compute
    tolerance = 2.0**-6 if compute == "bfloat16" else 2.0**-9
    scale = np.abs(reference(X)).max()
    np.testing.assert_allclose(oracles.numpy_of(output), reference(X), atol=tolerance * scale)


def test_save_config_and_mask():
    layer = built(activation=gelu_tanh, dropout=0.5, output_initializer="zeros", name="think")
    again = FeedForward.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    again.build(X.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(X), layer(X))
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(layer(embedded)._keras_mask, [[True, False]])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"intermediate_dim": 0}, "intermediate_dim=0"),
        ({"intermediate_dim": None}, "intermediate_dim=None"),
        ({"intermediate_dim": 3, "dropout": 1}, "`dropout`.*dropout=1"),
        ({"intermediate_dim": 3, "activation": "step"}, "activation.*step"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**arguments)
