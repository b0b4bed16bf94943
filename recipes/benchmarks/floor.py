"""What attention has to compute at least: which pairs of a query and a key, how many operations."""

import numpy as np

HEADS, HEAD_DIM = 8, 64
# The score of a pair and its share of the output: two products of a multiplication and an addition.
OPERATIONS_PER_PAIR = 4
# Each product of the forward pass has two in the backward pass.
FORWARD_AND_BACKWARD = 3


def gflop(pairs, backward=False):
    """Billions of operations of attention with `HEADS` heads of size `HEAD_DIM`, one sequence.

    Args:
        pairs: number. Pairs of a query and a key, per head.
        backward: bool. Whether to count the backward pass too.
    """
    passes = FORWARD_AND_BACKWARD if backward else 1
    return OPERATIONS_PER_PAIR * passes * pairs * HEADS * HEAD_DIM / 1e9


def layer_gflop(length, pairs, backward=False):
    """The same with the four projections of a layer of width `HEADS * HEAD_DIM`."""
    passes = FORWARD_AND_BACKWARD if backward else 1
    projections = 4 * 2 * length * (HEADS * HEAD_DIM) ** 2 / 1e9
    return passes * projections + gflop(pairs, backward)


def dense(length):
    """Pairs of everyone with everyone."""
    return length**2


def causal(length):
    """Pairs of a query and a key that is not after it."""
    return length * (length + 1) // 2


def local(length, window):
    """Pairs of `Local(window)`."""
    return int(np.minimum(np.arange(length) + 1, window).sum())


def own_and_previous_block(length, window):
    """Pairs that blocks of `window` queries compute to meet a window with whole blocks of keys."""
    return 2 * window * length


def block_local_1d(length, block_length, lookback):
    """Pairs of `BlockLocal1D(block_length, lookback)`."""
    within = np.arange(length) % block_length
    start = np.arange(length) - within
    return int((within + 1 + np.minimum(start, lookback)).sum())


def block_local_2d(length, image_shape, query_shape, flange):
    """Pairs of `BlockLocal2D`, for an image of `length` pixels that is a whole number of blocks."""
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
    """Pairs of `Strided(stride)`, both factors."""
    return int((np.arange(length) // stride).sum()) + local(length, stride)


def fixed(length, stride, summary):
    """Pairs of `Fixed(stride, summary)`, both factors."""
    block, within = np.divmod(np.arange(length), stride)
    return int((block * summary + within + 1).sum())


def lsh(length, chunk_length, num_rounds):
    """Pairs of `LSH`: in each round a sorted chunk of queries meets itself and the one before."""
    return 2 * chunk_length * num_rounds * length
