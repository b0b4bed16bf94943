"""Least operations of attention: pairs of a query and a key that may attend, by pattern."""

import numpy as np

HEADS, HEAD_DIM = 8, 64
# The score of a pair and its share of the output: two products of a multiplication and an addition.
OPERATIONS_PER_PAIR = 4
# Each product of the forward pass has two in the backward pass.
FORWARD_AND_BACKWARD = 3


def gflop(pairs, backward=False):
    """Return billions of operations of `HEADS` heads of size `HEAD_DIM`, one sequence.

    `pairs` of a query and a key attend in each head; `backward` counts the backward pass too.
    """
    passes = FORWARD_AND_BACKWARD if backward else 1
    return OPERATIONS_PER_PAIR * passes * pairs * HEADS * HEAD_DIM / 1e9


def layer_gflop(length, pairs, backward=False):
    """Return the same with the four projections of a layer of width `HEADS * HEAD_DIM`."""
    passes = FORWARD_AND_BACKWARD if backward else 1
    projections = 4 * 2 * length * (HEADS * HEAD_DIM) ** 2 / 1e9
    return passes * projections + gflop(pairs, backward)


def dense(length):
    """Return the number of all pairs."""
    return length**2


def causal(length):
    """Return the number of pairs of a query and a key that is not after it."""
    return length * (length + 1) // 2


def local(length, window):
    """Return the pairs of `Local(window)`."""
    return int(np.minimum(np.arange(length) + 1, window).sum())


def own_and_previous_block(length, window):
    """Return the pairs of blocks of `window` queries with their own and the previous block."""
    return 2 * window * length


def block_local_1d(length, block_length, lookback):
    """Return the pairs of `BlockLocal1D(block_length, lookback)`."""
    within = np.arange(length) % block_length
    start = np.arange(length) - within
    return int((within + 1 + np.minimum(start, lookback)).sum())


def block_local_2d(length, image_shape, query_shape, flange):
    """Return the pairs of `BlockLocal2D`, for an image of whole blocks with `length` pixels."""
    (height, width), (rows, columns), (above, beside) = image_shape, query_shape, flange
    own = rows * columns
    pairs = length // own * causal(own)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            to_left, to_right = min(beside, left), min(beside, width - left - columns)
            keys_above = min(above, top) * (columns + to_left + to_right)
            pairs += own * (keys_above + rows * to_left)
    return pairs


def strided(length, stride):
    """Return the pairs of `Strided(stride)`, both factors."""
    return int((np.arange(length) // stride).sum()) + local(length, stride)


def fixed(length, stride, summary):
    """Return the pairs of `Fixed(stride, summary)`, both factors."""
    block, within = np.divmod(np.arange(length), stride)
    return int((block * summary + within + 1).sum())


def lsh(length, chunk_length, num_rounds):
    """Return the pairs of `LSH`: in each round a sorted chunk attends to itself and the last."""
    return 2 * chunk_length * num_rounds * length
