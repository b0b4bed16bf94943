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


def test_half_precision():
    found, expected = built(dtype="mixed_bfloat16")(X, SEGMENTS), built()(X, SEGMENTS)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    np.testing.assert_allclose(oracles.numpy_of(found), expected, atol=2.0**-6)


def test_save_config_and_mask():
    layer = built(embeddings_initializer="ones", name="which")
    again = SegmentEmbedding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    again.build(X.shape)
    np.testing.assert_array_equal(again.table, np.ones((3, D)))
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(layer(embedded)._keras_mask, [[True, False]])


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
