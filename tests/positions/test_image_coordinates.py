import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.patterns import block_raster_order
from keras_attn.positions import ImageCoordinates

B, HEIGHT, WIDTH, CHANNELS, D = 2, 3, 5, 2, 11
T = HEIGHT * WIDTH * CHANNELS
X = oracles.random(B, T, D)
ENCODINGS = pytest.mark.parametrize("encoding", ["learned", "sinusoidal"])


def built(encoding="learned", size=(HEIGHT, WIDTH, CHANNELS), **arguments):
    layer = ImageCoordinates(*size, encoding=encoding, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def coordinates(layer):
    """What is added to each number of an image, in raster order."""
    vectors = []
    for row in range(layer.height):
        for column in range(layer.width):
            for channel in range(layer.channels):
                if layer.encoding == "learned":
                    tables = [oracles.numpy_of(w) for w in layer.weights]
                    vectors.append(tables[0][row] + tables[1][column] + tables[2][channel])
                else:
                    across = oracles.sinusoids(column * layer.channels + channel, D - D // 2)
                    vectors.append(np.concatenate([oracles.sinusoids(row, D // 2), across]))
    return np.array(vectors)


@ENCODINGS
def test_oracle(encoding):
    layer = built(encoding)
    shapes = [(HEIGHT, D), (WIDTH, D), (CHANNELS, D)] if encoding == "learned" else []
    assert [tuple(w.shape) for w in layer.weights] == shapes
    vectors = coordinates(layer)
    np.testing.assert_allclose(layer(X), X + vectors, atol=1e-5)
    places = np.random.default_rng(0).integers(0, T, (B, T))
    np.testing.assert_allclose(layer(X, places), X + vectors[places], atol=1e-5)
    np.testing.assert_allclose(layer(X[:, :7]), X[:, :7] + vectors[:7], atol=1e-5)


@ENCODINGS
def test_pixels_in_another_order_keep_their_coordinates(encoding):
    """The order that `BlockLocal2D` reads, whose columns count the channels."""
    order = block_raster_order((HEIGHT, WIDTH * CHANNELS), (2, 4))
    layer = built(encoding)
    in_raster_order = np.asarray(layer(X))
    np.testing.assert_array_equal(layer(X[:, order], order), in_raster_order[:, order])
    assert np.abs(layer(X[:, order]) - in_raster_order[:, order]).max() > 0.1
    by_rank = built(encoding, query_shape=(2, 4))
    by_rank.set_weights(layer.get_weights())
    np.testing.assert_allclose(by_rank(X[:, order]), in_raster_order[:, order], atol=1e-6)
    part = by_rank(X[:, order[3:7]], np.arange(3, 7))
    np.testing.assert_allclose(part, in_raster_order[:, order[3:7]], atol=1e-6)


def test_too_long_is_refused():
    with pytest.raises(ValueError, match="longer than the table.*length 30, a table of 2 x 5 x 2"):
        built(size=(2, WIDTH, CHANNELS))(X)


def test_too_long_fails_in_a_graph_of_unknown_length_too():
    layer = built(size=(2, WIDTH, CHANNELS))
    run = tf.function(layer, input_signature=[tf.TensorSpec((None, None, D))])
    np.testing.assert_array_equal(run(X[:, :20]), layer(X[:, :20]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(X)


def test_sinusoids_are_those_of_float32():
    far = np.array([10, 1000, 12287])
    zeros = np.zeros((1, 3, 32), "float32")
    layer = ImageCoordinates(64, 64, 3, encoding="sinusoidal", dtype="mixed_bfloat16")
    row, across = np.divmod(far, 192)
    exact = [
        np.concatenate([oracles.sinusoids(r, 16), oracles.sinusoids(c, 16)])
        for r, c in zip(row, across, strict=True)
    ]
    output = layer(zeros, far)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_allclose(oracles.numpy_of(output)[0], exact, atol=1.1 * 2.0**-9)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ImageCoordinates(0, 2, 2), "`height`.*height=0"),
        (lambda: ImageCoordinates(2, 2.5, 2), "`width`.*width=2.5"),
        (lambda: ImageCoordinates(2, 2, None), "`channels`.*channels=None"),
        (lambda: ImageCoordinates(2, 2, 2, "fourier"), "'learned', 'sinusoidal'.*'fourier'"),
        (lambda: built()(X[0]), r"`x` must have shape \(None, None, None\)"),
        (lambda: built()(X, np.zeros(X.shape[1])), "`positions` must be integers.*float"),
        (lambda: built()(X, np.arange(3)), r"`positions`.*\(30,\).*\(3,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
