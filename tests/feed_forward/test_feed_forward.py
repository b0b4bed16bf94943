import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.layers import FeedForward
from keras_attn.ops.activations import gelu_tanh

B, T, D, F = 2, 5, 7, 11
X = oracles.random(B, T, D)
ACTIVATIONS = {
    "relu": ("relu", lambda value: max(value, 0.0)),
    "exact gelu": ("gelu", oracles.gelu),
    "tanh gelu": (gelu_tanh, oracles.gelu_tanh),
}


def built(width=F, **arguments):
    layer = FeedForward(width, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


@pytest.mark.parametrize("activation, function", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_output_equals_the_formula(activation, function):
    layer = built(activation=activation)
    assert [w.shape for w in layer.weights] == [(D, F), (F,), (F, D), (D,)]
    weights = dict(zip(("w1", "b1", "w2", "b2"), map(oracles.numpy_of, layer.weights), strict=True))
    expected = oracles.feed_forward(X, weights, function)
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


def test_dropout_applies_to_the_hidden_layer_in_training_only():
    layer = built(1, activation="tanh", dropout=0.9)
    np.testing.assert_array_equal(layer(X), layer(X, training=False))
    dropped = np.asarray(layer(np.zeros((500, 1, D), "float32") + X[0, 0], training=True))[:, 0]
    # The hidden unit is there or not, which leaves two outputs and the mean.
    assert len(np.unique(np.round(dropped, 4), axis=0)) == 2
    error = dropped.std(axis=0) / np.sqrt(len(dropped))
    assert np.all(np.abs(dropped.mean(axis=0) - np.asarray(layer(X))[0, 0]) < 5 * error)
    assert np.all(error > 0)


def with_gradients(layer, x):
    """The output, and the gradients of the input and of every weight."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x)
        loss = tf.reduce_sum(tf.sin(output))
    return output, *tape.gradient(loss, [x, *(w.value for w in layer.trainable_weights)])


def assert_alike(results, expected, atol):
    for part, whole in zip(results, expected, strict=True):
        part, whole = oracles.numpy_of(part), oracles.numpy_of(whole)
        np.testing.assert_allclose(part, whole, atol=atol * np.abs(whole).max(initial=1.0))


@pytest.mark.parametrize(
    "chunks, shape", [(3, (2, 3, 4, D)), slow(2, (B, 5, D)), slow(100, (5, D))]
)
def test_chunks_equal_one_pass(chunks, shape):
    """The rows are a multiple of one of these numbers, not of the others, and of any rank."""
    x = oracles.random(*shape)
    results, expected = (with_gradients(built(chunks=c), x) for c in (chunks, 1))
    assert len(results) == 6
    assert_alike(results, expected, 1e-5)


@pytest.mark.slow
def test_chunks_in_a_graph_of_unknown_sizes():
    layer, whole = built(chunks=3), built()

    @tf.function(input_signature=[tf.TensorSpec((None, None, D))], jit_compile=True)
    def compiled(x):
        return with_gradients(layer, x)

    for shape in ((2, 5, D), (0, 3, D)):  # XLA compiles each
        x = oracles.random(*shape)
        for run in (compiled, compiled.python_function):
            assert_alike(run(x), with_gradients(whole, x), 1e-5)


def test_chunks_with_weights_that_are_frozen_or_adapted():
    chunked, expected = built(chunks=3), built()
    for layer in (chunked, expected):
        layer.trainable = False
    assert_alike(with_gradients(chunked, X), with_gradients(expected, X), 1e-5)
    for layer in (chunked, expected):
        layer.trainable = True
        layer.intermediate.enable_lora(2)
        oracles.scramble(layer)
    assert len(with_gradients(chunked, X)) == 7
    assert_alike(with_gradients(chunked, X), with_gradients(expected, X), 1e-5)


def test_each_chunk_has_its_own_dropout_reused_by_the_backward_pass():
    """Hidden units are ones and leave as they are, so that the output is what was dropped."""
    length, chunks, rate = 60, 5, 0.4
    layer = FeedForward(D, activation="linear", dropout=rate, chunks=chunks)
    layer.build(X.shape)
    layer.set_weights([np.zeros((D, D)), np.ones(D), np.eye(D), np.zeros(D)])
    x, share = oracles.random(1, length, D), oracles.random(length, D, seed=1)

    def step(x):
        with tf.GradientTape() as tape:
            output = layer(x, training=True)[0]
            loss = tf.reduce_sum(output * share)
        return output, tape.gradient(loss, layer.output_dense.kernel.value)

    output, gradient = (np.asarray(y) for y in step(x))
    assert set(np.unique(output.round(4))) == {0.0, np.float32(1 / (1 - rate)).round(4)}
    np.testing.assert_allclose(gradient, output.T @ share, atol=1e-4)
    pieces = output.reshape(chunks, length // chunks, D)
    assert len(np.unique(pieces, axis=0)) == chunks
    assert abs((output > 0).mean() - (1 - rate)) < 0.1
    assert np.any(layer(x, training=True)[0] != output)
    np.testing.assert_array_equal(layer(x), layer(x, training=False))


@pytest.mark.slow
def test_gradients_of_many_chunks_are_summed_in_float32():
    """A sum of equal numbers in bfloat16 stops growing at 256 of them."""
    length = 1000
    x = np.ones((1, length, D), "float32")
    layer, whole = built(chunks=length, dtype="mixed_bfloat16"), built()
    run = tf.function(with_gradients)
    gradients, expected = (run(each, x)[2:] for each in (layer, whole))
    for part, exact in zip(gradients, expected, strict=True):
        assert part.dtype == "float32"
        np.testing.assert_allclose(part, exact, atol=0.03 * np.abs(exact).max())


PEAK_LENGTH, PEAK_WIDTH = 2048, 1024


def peak_memory(dropout, chunks):
    """Bytes of tensors at the peak of a training step beyond those before it."""
    layer = FeedForward(PEAK_WIDTH, dropout=dropout, chunks=chunks)
    layer.build((None, None, D))

    @tf.function(input_signature=[tf.TensorSpec((None, None, D))])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(layer(x, training=True)))
        return tape.gradient(loss, [x, *(weight.value for weight in layer.weights)])

    x = tf.ones((1, PEAK_LENGTH, D))
    step(x)
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    tf.config.experimental.reset_memory_stats("CPU:0")
    step(x)
    return tf.config.experimental.get_memory_info("CPU:0")["peak"] - before


@pytest.mark.slow
def test_training_peak_memory_is_that_of_one_chunk():
    """In 16 chunks it is below a quarter of the hidden layer, with dropout below half of it."""
    hidden = 4 * PEAK_LENGTH * PEAK_WIDTH
    assert peak_memory(0.0, chunks=16) < hidden / 4
    assert peak_memory(0.1, chunks=16) < hidden / 2
    assert peak_memory(0.0, chunks=1) > hidden


def test_initializers():
    layer = FeedForward(F, kernel_initializer="ones", output_initializer="zeros")
    layer.build(X.shape)
    w1, _, w2, _ = (w.numpy() for w in layer.weights)
    assert np.all(w1 == 1) and np.all(w2 == 0)
    layer = FeedForward(D, kernel_initializer=keras.initializers.RandomNormal())
    layer.build(X.shape)
    assert np.any(layer.weights[0].numpy() != layer.weights[2].numpy())


def test_arguments_of_keras_dense_reach_both_layers():
    layer = built(
        use_bias=False, kernel_regularizer=keras.regularizers.L2(0.5), kernel_constraint="non_neg"
    )
    w1, w2 = (oracles.numpy_of(w) for w in layer.weights)
    np.testing.assert_allclose(layer(X), np.maximum(X @ w1, 0) @ w2, atol=1e-5)
    np.testing.assert_allclose(sum(layer.losses), 0.5 * ((w1**2).sum() + (w2**2).sum()), rtol=1e-5)
    assert all(isinstance(w.constraint, keras.constraints.NonNeg) for w in layer.weights)
    layer = built(bias_initializer="ones", bias_regularizer="l1", bias_constraint="non_neg")
    assert all(isinstance(w.constraint, keras.constraints.NonNeg) for w in layer.weights[1::2])


def test_the_mask_is_passed_on():
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(built()(embedded)._keras_mask, [[True, False]])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"intermediate_dim": 0}, "intermediate_dim=0"),
        ({"intermediate_dim": None}, "intermediate_dim=None"),
        ({"intermediate_dim": 3, "dropout": 1}, "`dropout`.*dropout=1"),
        ({"intermediate_dim": 3, "chunks": 0}, "chunks=0"),
        ({"intermediate_dim": 3, "activation": "step"}, "activation.*step"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**arguments)
