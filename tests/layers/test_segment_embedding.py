import keras
import numpy as np
import oracles
import pytest

from keras_attn.layers import SegmentEmbedding

B, T, D = 2, 4, 7
X = oracles.random(B, T, D)
SEGMENTS = np.array([[0, 0, 1, 2], [1, 1, 1, 0]])


def built(**arguments):
    layer = SegmentEmbedding(3, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def test_output_equals_the_formula():
    layer = built()
    np.testing.assert_array_equal(layer(X, SEGMENTS), X + layer.table.numpy()[SEGMENTS])
    np.testing.assert_array_equal(layer(X), layer(X, np.zeros((B, T), "int32")))


def test_the_mask_is_passed_on():
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(built()(embedded)._keras_mask, [[True, False]])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SegmentEmbedding(0), "`num_segments`.*num_segments=0"),
        (lambda: built()(X, SEGMENTS + 1), r"`segment_ids` must be ids.*in \[0, 3\)"),
        (lambda: built()(X, SEGMENTS[:, :3]), r"`segment_ids`.*\(2, 4\).*\(2, 3\)"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
