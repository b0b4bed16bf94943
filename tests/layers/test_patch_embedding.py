import numpy as np
import oracles
import pytest

from keras_attn.layers import PatchEmbedding

IMAGES = oracles.random(2, 4, 6, 3)


def built(**arguments):
    layer = PatchEmbedding(2, 5, **arguments)
    layer.build(IMAGES.shape)
    oracles.scramble(layer)
    return layer


@pytest.mark.parametrize("class_token", [True, False])
def test_output_equals_the_formula(class_token):
    layer = built(class_token=class_token)
    kernel, bias, *token = map(oracles.numpy_of, layer.weights)
    expected = [np.tile(vector, (2, 1)) for vector in token]
    for row in (0, 2):
        for column in (0, 2, 4):
            patch = IMAGES[:, row : row + 2, column : column + 2]
            expected.append(patch.reshape(2, -1) @ kernel + bias)
    output = layer(IMAGES)
    np.testing.assert_allclose(output, np.stack(expected, axis=1), atol=1e-5)
    assert output.shape[1] == layer.num_tokens(IMAGES.shape[1:]) == 6 + class_token


def test_images_of_other_channels_raise():
    layer = PatchEmbedding(2, 5)
    layer(np.zeros((1, 4, 6, 3)))
    for images in (np.zeros((3, 4, 6, 1)), np.zeros((1, 4, 6, 6))):
        with pytest.raises(ValueError, match=r"`images` must have shape \(None, None, None, 3\)"):
            layer(images)


@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (2, 4, 7, 3), (2, None, 6, 3)])
def test_images_that_patches_do_not_fill_raise(shape):
    with pytest.raises(ValueError, match="in multiples of patch_size=2. Received: image_shape="):
        PatchEmbedding(2, 5).build(shape)
