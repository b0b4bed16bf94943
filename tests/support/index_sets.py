"""Patterns, each with the sets of keys that its paper gives a query, and tiles for small sizes."""

import numpy as np

from keras_attn.attention.inputs import TileSizes
from keras_attn.patterns import (
    BlockLocal1D,
    BlockLocal2D,
    Causal,
    Dense,
    Dilated,
    Fixed,
    Global,
    Local,
    PerHead,
    Prefix,
    Random,
    Strided,
)

W = 5  # the window, block and stride of most cases
NUM_HEADS = 3


# The keys of a query at position i.
def everything(i):
    return set(range(1000))


def past(i):
    return set(range(i + 1))


def near(window):
    return lambda i: set(range(i - window + 1, i + 1))


def around(window):
    return lambda i: set(range(i - window + 1, i + window))


def block(length, lookback):
    return lambda i: set(range(i - i % length - lookback, i + 1))


def column(stride):
    return lambda i: set(range(i, -1, -stride))


def spread(window, dilation):
    return lambda i: {i - n * dilation for n in range(window)}


def spread_around(window, dilation):
    return lambda i: {i + n * dilation for n in range(1 - window, window)}


def first(count):
    return lambda i: set(range(count))


def given_to_all(count):
    return lambda i: everything(i) if i < count else set(range(count))


def drawn(pattern):
    """Keys of the blocks in the pattern's table."""
    length, table = pattern.block_length, pattern.blocks()
    return lambda i: {j for b in table[i // length] for j in range(b * length, (b + 1) * length)}


def summary(stride, last):
    ends = set(range(stride - last, stride))
    return lambda i: {j for j in past(i) if j % stride in ends}


def rectangle(image_shape, query_shape, flange):
    """Pixels before, in a block of the image and above and beside it, all in block-raster order."""
    pixels = [(row, column) for row in range(image_shape[0]) for column in range(image_shape[1])]
    (height, width), (above, beside) = query_shape, flange
    pixels.sort(key=lambda pixel: (pixel[0] // height, pixel[1] // width, pixel))

    def keys(i):
        top, left = pixels[i][0] // height * height, pixels[i][1] // width * width
        rows = range(top - above, top + height)
        columns = range(left - beside, left + width + beside)
        return {j for j in past(i) if pixels[j][0] in rows and pixels[j][1] in columns}

    return keys


def union(a, b):
    return lambda i: a(i) | b(i)


def both(a, b):
    return lambda i: a(i) & b(i)


RANDOM, RANDOM_CAUSAL = Random(3, 2, 270), Random(4, 2, 270, causal=True, seed=3)

NESTED = (Local(3, causal=False) | Fixed(W, 1)) & BlockLocal1D(2 * W, W)

CASES = {
    "dense": (Dense(), everything),
    "causal": (Causal(), past),
    "local": (Local(W), near(W)),
    "local 1": (Local(1), near(1)),
    "local around": (Local(W, causal=False), around(W)),
    "block": (BlockLocal1D(W, 0), block(W, 0)),
    "block lookback": (BlockLocal1D(W, 2 * W + 1), block(W, 2 * W + 1)),
    "block of an image": (
        BlockLocal2D((54, W), (3, 2), flange=(2, 1)),
        rectangle((54, W), (3, 2), (2, 1)),
    ),
    "dilated": (Dilated(3, 4), spread(3, 4)),
    "dilated around": (Dilated(3, 4, causal=False), spread_around(3, 4)),
    "global": (Global(4), given_to_all(4)),
    "global causal": (Global(4, causal=True), both(first(4), past)),
    "prefix": (Prefix(4), first(4)),
    "random": (RANDOM, drawn(RANDOM)),
    "random causal": (RANDOM_CAUSAL, drawn(RANDOM_CAUSAL)),
    "big bird": (
        Local(3, causal=False) | Global(2) | RANDOM,
        union(union(around(3), given_to_all(2)), drawn(RANDOM)),
    ),
    "strided local": (Strided(W, "local"), near(W)),
    "strided column": (Strided(W, "column"), column(W)),
    "strided": (Strided(W), union(near(W), column(W))),
    "fixed block": (Fixed(W, 2, "block"), block(W, 0)),
    "fixed summary": (Fixed(W, 2, "summary"), summary(W, 2)),
    "fixed": (Fixed(W, 2), union(block(W, 0), summary(W, 2))),
    "around and causal": (Local(W, causal=False) & Causal(), near(W)),
    "causal and strided": (Causal() & Strided(W), union(near(W), column(W))),
    "local or column": (Local(3) | Strided(W, "column"), union(near(3), column(W))),
    "nested": (
        NESTED,
        both(union(around(3), union(block(W, 0), summary(W, 1))), block(2 * W, W)),
    ),
    "heads": (PerHead([Local(W), Causal(), Local(W)]), [near(W), past, near(W)]),
    "heads in rows": (
        PerHead([Strided(W, "column"), Strided(W, "column"), Dense()]),
        [column(W), column(W), everything],
    ),
}

# Without those whose plan is another's.
DISTINCT = [
    name
    for name in CASES
    if name not in ("local 1", "strided local", "fixed block", "around and causal", "heads")
]


# One for each way of cutting, and for merging.
WAYS = ["dense", "causal", "local around", "strided", "fixed", "nested", "heads in rows"]


def truth(sets, length, num_keys):
    """Bool (N, T, S); the queries are the last T of S positions."""
    heads = sets if isinstance(sets, list) else [sets] * NUM_HEADS
    allowed = np.zeros((NUM_HEADS, length, num_keys), bool)
    for n, t in np.ndindex(NUM_HEADS, length):
        keys = heads[n](num_keys - length + t)
        allowed[n, t, [j for j in keys if 0 <= j < num_keys]] = True
    return allowed


# A few positions make many tiles, of one block and of several; chunks of the least length, 32.
SMALL_TILES = TileSizes(chunk_scores=1, block_scores=700, least_group=4, most_block=3)
