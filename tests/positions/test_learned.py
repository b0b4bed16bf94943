import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.positions import Learned

B, T, D, P = 2, 5, 7, 11
X = oracles.random(B, T, D)


def built(max_length=P, **arguments):
    layer = Learned(max_length, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def test_oracle():
    layer = built()
    np.testing.assert_array_equal(layer(X), X + layer.table.numpy()[:T])
    rows = np.array([[0, 1, 2, 0, 1], [6, 7, 8, 9, 10]])
    np.testing.assert_array_equal(layer(X, rows), X + layer.table.numpy()[rows])
    np.testing.assert_array_equal(layer(X, np.arange(T)), layer(X))


def test_only_the_rows_that_were_read_get_a_gradient():
    layer = built()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(X))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value)).numpy()
    np.testing.assert_allclose(gradient, np.repeat([[B] * D] * T + [[0] * D] * (P - T), 1, axis=0))


def test_the_longest_sequence_is_the_table():
    layer = built(T)
    np.testing.assert_array_equal(layer(X), X + layer.table.numpy())


def test_too_long_is_refused():
    with pytest.raises(ValueError, match=r"longer than the table.*length 5, a table of 4"):
        built(4)(X)


def test_too_long_fails_in_a_graph_of_unknown_length_too():
    layer = built(4)
    run = tf.function(layer, input_signature=[tf.TensorSpec((None, None, D))])
    np.testing.assert_array_equal(run(X[:, :4]), layer(X[:, :4]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(X)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Learned(0), r"`max_length`.*max_length=0"),
        (lambda: Learned("long"), r"`max_length`.*max_length='long'"),
        (lambda: built()(X[0]), r"`x` must have shape \(None, None, None\)"),
        (lambda: built()(X, np.zeros(X.shape[1])), "`positions` must be integers.*float"),
        (lambda: built()(X, np.arange(3)), r"`positions`.*\(5,\).*\(3,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_mask_is_passed_on():
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(built()(embedded)._keras_mask, [[True, False]])
