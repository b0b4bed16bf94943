"""Against the definition: ranks in block-raster order, and a rectangle around each block."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.attention.inputs import AttentionInputs, PositionRange, TileSizes, positions_tensor
from keras_attn.attention.softmax import attend_logits
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import BlockLocal2D, Causal, Local, block_raster_order
from keras_attn.scores import DotProduct, Score

B, N, H = 2, 3, 5
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


def allowed_by_definition(image, block, flange):
    pixels = order_by_definition(image, block)
    allowed = np.zeros((len(pixels), len(pixels)), bool)
    for i, (row, column) in enumerate(pixels):
        top, left = row - row % block[0], column - column % block[1]
        for j, (r, c) in enumerate(pixels):
            inside = top - flange[0] <= r < top + block[0]
            inside = inside and left - flange[1] <= c < left + block[1] + flange[1]
            allowed[i, j] = inside and j <= i
    return allowed


@pytest.mark.parametrize("image, block, flange", SHAPES)
def test_order(image, block, flange):
    order = block_raster_order(image, block)
    assert order.dtype == "int32" and sorted(order) == list(range(image[0] * image[1]))
    found = [divmod(int(pixel), image[1]) for pixel in order]
    assert found == order_by_definition(image, block)


def test_order_of_limits():
    """A block of whole rows, or one that holds the image, leaves the raster as it is."""
    for block in ((1, 7), (2, 7), (5, 7), (9, 9)):
        np.testing.assert_array_equal(block_raster_order((5, 7), block), np.arange(35))


@pytest.mark.parametrize("image, block, flange", SHAPES)
def test_truth(image, block, flange):
    pattern = BlockLocal2D(image, block, flange)
    ranks = np.arange(image[0] * image[1])
    expected = allowed_by_definition(image, block, flange)
    np.testing.assert_array_equal(pattern.allowed(ranks, ranks), expected)
    outside = np.append(-ranks[::-1] - 1, ranks + len(ranks))
    for positions in ((ranks, outside), (outside, ranks), (outside, outside)):
        assert not np.any(pattern.allowed(*positions))


def by_distance(query, key, query_positions, key_positions):
    i, j = positions_tensor(query_positions), positions_tensor(key_positions)
    distance = tf.cast(i[..., :, None] - j[..., None, :], "float32")
    return DotProduct()(query, key) + tf.sin(distance)


class ByDistance(Score):
    def __call__(self, query, key, query_positions, key_positions):
        return by_distance(query, key, query_positions, key_positions)


def operands(query, key, value, real=None):
    length, num_keys = (x.shape[2] or tf.shape(x)[2] for x in (query, key))
    positions = PositionRange(num_keys - length, length), PositionRange(0, num_keys)
    tiles = TileSizes(block_scores=2**9)
    arguments = query, key, value, *positions, ByDistance()
    return AttentionInputs(*arguments, key_mask=real, tile_sizes=tiles)


def value_and_gradients(function, inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
        loss = tf.reduce_sum(output * tf.cos(tf.range(float(H))))
    return output, *tape.gradient(loss, inputs, unconnected_gradients="zero")


def check_plan(shape, length, num_keys, padded, wrap=lambda implementation: implementation):
    allowed = allowed_by_definition(*shape)
    inputs = [
        tf.constant(oracles.random(B, N, count, H, seed=i))
        for i, count in enumerate((length, num_keys, num_keys))
    ]
    real = np.random.default_rng(0).random((B, 1, num_keys)) < (0.6 if padded else 1)
    mask = allowed[None, None, num_keys - length : num_keys, :num_keys] & real[:, :, None]

    def truth(query, key, value):
        ranks = np.arange(num_keys, dtype="int32")
        return attend_logits(by_distance(query, key, ranks[-length:], ranks), value, mask)[0]

    def plan(query, key, value):
        real_keys = (tf.constant(real),) if padded else ()
        return wrap(plan_of(shape))(query, key, value, *real_keys)

    found = value_and_gradients(plan, inputs)
    oracles.check_each(found, value_and_gradients(truth, inputs), atol=1e-5)


def plan_of(shape):
    pattern = BlockLocal2D(*shape)
    return lambda query, key, value, real=None: pattern.plan.attend(
        operands(query, key, value, real)
    )[0]


@pytest.mark.parametrize("shape", [SHAPES[1], slow(SHAPES[3]), slow(SHAPES[6])], ids=str)
def test_plan_equals_truth(shape):
    """For the whole image, for one that is not finished, and for the last positions of either."""
    size = shape[0][0] * shape[0][1]
    for length, num_keys, padded in (
        (size, size, False),
        (size // 2, size // 2, True),
        (1, 1, False),
        (size // 3, size - 1, True),
    ):
        check_plan(shape, length, num_keys, padded)


@pytest.mark.slow
def test_plan_in_a_graph():
    shape, size = SHAPES[1], 35  # ragged at both edges
    unknown = [tf.TensorSpec((None, N, None, H))] * 3 + [tf.TensorSpec((None, 1, None), "bool")]
    run = tf.function(plan_of(shape), unknown, autograph=False)
    for length, num_keys in ((size, size), (3, size - 2)):
        check_plan(shape, length, num_keys, padded=True, wrap=lambda _: run)


def test_no_leak():
    """What comes later in block-raster order changes nothing, to the bit."""
    layer = MultiHeadAttention(2, 4, pattern=BlockLocal2D(*SHAPES[1]), implementation="blockwise")
    x = oracles.random(1, 35, 6)
    before = np.asarray(layer(x, x))
    for rank in (0, 20):
        changed = x.copy()
        changed[:, rank] += 10
        after = np.asarray(layer(changed, changed))
        np.testing.assert_array_equal(after[:, :rank], before[:, :rank])
        assert np.any(after[:, rank] != before[:, rank])


def test_limit_of_a_flange_that_covers_the_image():
    ranks = np.arange(35)
    for shape in (((5, 7), (2, 3), (5, 7)), ((5, 7), (5, 7), (0, 0))):
        allowed = BlockLocal2D(*shape).allowed(ranks, ranks)
        np.testing.assert_array_equal(allowed, Causal().allowed(ranks, ranks))


def test_limit_of_a_single_row_is_blocks_of_a_sequence():
    """In a row of pixels, the flange is the look-back."""
    ranks = np.arange(20)
    image = BlockLocal2D((1, 20), (1, 4), (0, 3)).allowed(ranks, ranks)
    start = ranks[:, None] // 4 * 4
    expected = (ranks <= ranks[:, None]) & (ranks >= start - 3)
    np.testing.assert_array_equal(image, expected)


def test_combined():
    pattern = BlockLocal2D(*SHAPES[1]) | Local(9)
    x = oracles.random(B, 35, 6)
    layers = [
        MultiHeadAttention(2, 4, pattern=pattern, implementation=implementation)
        for implementation in ("blockwise", "dense")
    ]
    for layer in layers:
        layer.build(x.shape)
    layers[1].set_weights(layers[0].get_weights())
    np.testing.assert_allclose(layers[0](x, x), layers[1](x, x), atol=1e-5)


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
