import numpy as np
import oracles
import pytest

from keras_attn.layers import PixelEmbedding

V, C, D = 256, 3, 5
START = V**C + 1


def ids_of(pixels):
    """1 and then the digits of each pixel."""
    return np.array([[1 + sum(v * V ** (C - 1 - c) for c, v in enumerate(p)) for p in pixels]])


def test_output_equals_the_formula():
    """x = v W + b of values on [-1, 1]; the start has a vector of its own."""
    layer = PixelEmbedding(V, C, D)
    layer.build()
    oracles.scramble(layer)
    kernel, bias, start = map(oracles.numpy_of, layer.weights)
    pixels = [[0, 0, 0], [255, 0, 128], [255, 255, 255], [3, 254, 7]]
    output = layer(np.append([[START]], ids_of(pixels), axis=1))
    np.testing.assert_allclose(output[0, 0], start, atol=1e-6)
    expected = (np.array(pixels) / 127.5 - 1) @ kernel + bias
    np.testing.assert_allclose(output[0, 1:], expected, atol=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((256, 4, 8), "less than 2.31.*channels=4"),
        ((1, 3, 8), "`num_values`.*at least 2"),
        ((256, 0, 8), "`channels`"),
        ((256, 3, 0), "`hidden_dim`"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        PixelEmbedding(*arguments)
