import numpy as np
import pytest
from marks import slow

from keras_attn.models import ImageTokens, gpt, image_transformer, super_resolution_transformer
from keras_attn.patterns import BlockLocal2D
from keras_attn.positions import ImageCoordinates

B, HEIGHT, WIDTH, CHANNELS, V = 2, 3, 5, 2, 7
SHAPE = (HEIGHT, WIDTH, CHANNELS)
IMAGES = np.random.default_rng(0).integers(0, V, (B, *SHAPE)).astype("uint8")


def places(columns, block):
    """Return (row, column) of all tokens in order, by loops over blocks."""
    height, width = block or (1, columns)
    for top in range(0, HEIGHT, height):
        for left in range(0, columns, width):
            for row in range(top, min(top + height, HEIGHT)):
                for column in range(left, min(left + width, columns)):
                    yield row, column


@pytest.mark.parametrize("block", [None, (2, 3)])
@pytest.mark.parametrize("whole", [False, True])
def test_output_equals_the_formula(block, whole):
    tokens = ImageTokens(SHAPE, V, block, whole)
    values = IMAGES.astype(int)
    if whole:
        ids = 1 + values[..., 0] * V + values[..., 1]
    else:
        ids = 1 + values.reshape(B, HEIGHT, WIDTH * CHANNELS)
    order = list(places(ids.shape[2], block))
    expected = np.stack([ids[:, row, column] for row, column in order], axis=1)
    np.testing.assert_array_equal(tokens.encode(IMAGES), expected)
    assert tokens.length == len(order) and tokens.vocabulary_size == (V * V if whole else V) + 2
    start = np.full((B, 1), tokens.start_id)
    assert tokens.start_id == tokens.vocabulary_size - 1 > expected.max()
    np.testing.assert_array_equal(tokens.start(B), start)
    np.testing.assert_array_equal(
        tokens.inputs(IMAGES), np.concatenate([start, expected[:, :-1]], axis=1)
    )
    np.testing.assert_array_equal(tokens.decode(expected), IMAGES)
    if whole:
        pixels = np.stack([values[:, row, column] for row, column in order], axis=1)
        np.testing.assert_array_equal(tokens.values(IMAGES), pixels)


def test_invalid_ids_decode_to_the_nearest_value():
    ids = np.full((1, HEIGHT * WIDTH * CHANNELS), V + 1)
    ids[0, 0] = 0
    images = ImageTokens(SHAPE, V).decode(ids).numpy()
    assert images[0, 0, 0, 0] == 0 and np.all(images.ravel()[1:] == V - 1)


@pytest.mark.parametrize("block, mixtures", [(None, 3), slow((2, 4), None)])
def test_tokenizer_of_a_model_has_its_shapes(block, mixtures):
    columns = WIDTH * (CHANNELS if mixtures is None else 1)
    pattern = None if block is None else BlockLocal2D((HEIGHT, columns), block, (1, 1))
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 7}
    model = image_transformer(V + 2, SHAPE, **sizes, pattern=pattern, num_mixtures=mixtures)
    assert ImageTokens.of(model) == ImageTokens(SHAPE, V, block, mixtures is not None)
    if mixtures is None:
        model = super_resolution_transformer(V + 2, (1, 2, 2), SHAPE, 1, **sizes, pattern=pattern)
        assert ImageTokens.of(model) == ImageTokens(SHAPE, V, block)
    with pytest.raises(ValueError, match="`model` must have `ImageCoordinates`"):
        ImageTokens.of(gpt(V, **sizes, max_length=4))


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="less than 2.31 different pixels.*channels=4"):
        ImageTokens((4, 6, 4), whole_pixels=True)
    with pytest.raises(ValueError, match=r"image_shape=\(3, 4\)"):
        ImageTokens((3, 4))
    with pytest.raises(ValueError, match="`image_shape` must be an integer.*0"):
        ImageTokens((3, 4, 0))
    with pytest.raises(ValueError, match="`query_shape`"):
        ImageTokens(SHAPE, query_shape=(2,))
    with pytest.raises(ValueError, match="`images` must have shape"):
        ImageTokens(SHAPE).encode(IMAGES[:, :2])
    with pytest.raises(ValueError, match="`token_ids` must have shape"):
        ImageTokens(SHAPE).decode(np.ones((1, 7), int))
    with pytest.raises(ValueError, match="query_shape"):
        ImageCoordinates(*SHAPE, query_shape=3)
