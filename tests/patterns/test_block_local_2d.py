"""Against the definition: ranks in block-raster order, and a rectangle around each block."""

import numpy as np
import oracles
import pytest
from index_sets import rectangle

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import BlockLocal2D, block_raster_order

B = 2
# Image, block, flange: divided evenly; ragged at both edges; one block; blocks and a flange larger
# than the image; blocks of a pixel; a single row, a single column.
SHAPES = [
    ((4, 6), (2, 3), (1, 1)),
    ((5, 7), (2, 3), (1, 2)),
    ((4, 4), (4, 4), (0, 0)),
    ((5, 7), (3, 9), (9, 9)),
    ((3, 5), (1, 1), (0, 0)),
    ((1, 7), (1, 2), (3, 1)),
    ((7, 1), (2, 2), (3, 1)),
]


def order_by_definition(image, block):
    """Pixels (row, column), one block after the other."""
    pixels = []
    for top in range(0, image[0], block[0]):
        for left in range(0, image[1], block[1]):
            for row in range(top, min(top + block[0], image[0])):
                for column in range(left, min(left + block[1], image[1])):
                    pixels.append((row, column))
    return pixels


@pytest.mark.parametrize("image, block, flange", SHAPES)
def test_order(image, block, flange):
    order = block_raster_order(image, block)
    assert order.dtype == "int32" and sorted(order) == list(range(image[0] * image[1]))
    pixels = [divmod(int(pixel), image[1]) for pixel in order]
    assert pixels == order_by_definition(image, block)


def test_order_of_limits():
    """A block of whole rows, or one that holds the image, leaves the raster as it is."""
    for block in ((1, 7), (2, 7), (5, 7), (9, 9)):
        np.testing.assert_array_equal(block_raster_order((5, 7), block), np.arange(35))


@pytest.mark.parametrize("image, block, flange", SHAPES)
def test_truth(image, block, flange):
    pattern = BlockLocal2D(image, block, flange)
    ranks = np.arange(image[0] * image[1])
    expected, keys = np.zeros((len(ranks), len(ranks)), bool), rectangle(image, block, flange)
    for rank in ranks:
        expected[rank, sorted(keys(rank))] = True
    np.testing.assert_array_equal(pattern.allowed(ranks, ranks), expected)
    outside = np.append(-ranks[::-1] - 1, ranks + len(ranks))
    for positions in ((ranks, outside), (outside, ranks), (outside, outside)):
        assert not np.any(pattern.allowed(*positions))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[3], SHAPES[6]], ids=str)
def test_plan_equals_the_matrix(shape):
    """For the whole image, for its first pixel, and for the last pixels of an unfinished one.

    Gradients and padding are in tests/patterns/test_plans.py.
    """
    size = shape[0][0] * shape[0][1]
    x = oracles.random(B, size, 6)
    planned, dense = (
        MultiHeadAttention(2, 4, pattern=BlockLocal2D(*shape), implementation=implementation)
        for implementation in ("blockwise", "dense")
    )
    for layer in (planned, dense):
        layer.build(x.shape)
        oracles.scramble(layer)
    for length, num_keys in ((size, size), (1, 1), (size // 3, size - 1)):
        query, keys = x[:, num_keys - length : num_keys], x[:, :num_keys]
        np.testing.assert_allclose(planned(query, keys), dense(query, keys), atol=1e-5)


def test_cost():
    """A row above the block and its own two, without what is right of them."""
    assert BlockLocal2D((6, 10), (2, 3), (1, 2)).keys_per_query(60) == 1 * 7 + 2 * 5
    assert BlockLocal2D((6, 10), (2, 3), (1, 2)).keys_per_query(9) == 9


@pytest.mark.parametrize(
    "shape, message",
    [
        ((4, (2, 3), (1, 1)), "`image_shape`.*at least 1.*image_shape=4"),
        (((4, 6, 3), (2, 3), (1, 1)), r"`image_shape`.*image_shape=\(4, 6, 3\)"),
        (((4, 6), (0, 3), (1, 1)), r"`query_shape`.*at least 1.*query_shape=\(0, 3\)"),
        (((4, 6), (2, 1.5), (1, 1)), r"`query_shape`.*query_shape=\(2, 1.5\)"),
        (((4, 6), (2, 3), (1, -1)), r"`flange`.*at least 0.*flange=\(1, -1\)"),
        (((4, 6), (2, 3), 1), "`flange`.*flange=1"),
    ],
)
def test_errors(shape, message):
    with pytest.raises(ValueError, match=message):
        BlockLocal2D(*shape)


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_a_sequence_longer_than_the_image(implementation):
    layer = MultiHeadAttention(
        2, 4, pattern=BlockLocal2D((4, 6), (2, 3), (1, 1)), implementation=implementation
    )
    x = oracles.random(1, 25, 6)
    for query in (x, x[:, :3]):
        with pytest.raises(ValueError, match=r"`image_shape`.*image_shape=\(4, 6\), 25 positions"):
            layer(query, x)
