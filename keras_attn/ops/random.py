"""Normal numbers that are the same wherever they are drawn."""

import math

import keras
from keras import ops


def normals(shape, seed):
    """Normal float32 numbers, the same on every backend, eagerly, in graphs and under XLA.

    TensorFlow's own differ under XLA, with which a model would hash otherwise than it was trained.

    Args:
        shape: tuple of ints and int tensors. seed: int32 (2,).
    """
    count = math.prod(shape)
    key = _mix(_mix(seed[0]) + seed[1])
    numbers = ops.arange(count, dtype="int32")
    radius = ops.sqrt(-2.0 * ops.log(_uniform(numbers, key)))
    angle = 2 * math.pi * _uniform(numbers, _mix(key + 1))
    return ops.reshape(radius * ops.cos(angle), shape)  # Box and Muller's


def _uniform(numbers, key):
    bits = _shift(_mix(_mix(numbers) + key), 9)
    return (ops.cast(bits, "float32") + 0.5) / 2**23


def _mix(x):
    """Each bit of the result depends on all bits of x (Wellons's lowbias32, in signed numbers)."""
    x = ops.bitwise_xor(x, _shift(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _shift(x, 15)) * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, _shift(x, 16))


def _shift(x, bits):
    """To the right, with zeros on the left."""
    return ops.bitwise_and(ops.right_shift(x, bits), 2 ** (32 - bits) - 1)


class RepeatedSeed(keras.random.SeedGenerator):
    """A generator that draws the same numbers each time, from a seed that may be a tensor.

    What a backward pass computes again must drop the same weights again.
    """

    def __init__(self, seed):
        # Not the parent's, which would make a variable.
        self._seed = seed

    def next(self, ordered=True):
        # JAX takes keys of no other type.
        is_jax = keras.backend.backend() == "jax"
        return ops.cast(self._seed, "uint32") if is_jax else self._seed


def split_seed(seed, count):
    """A seed int32 (2,) for each of `count` parts, from the seed of all of them."""
    # Not beside each other, where the seeds of the next calls are.
    parts = ops.arange(count, dtype="int32") * 32452843
    return ops.cast(seed, "int32") + ops.stack([parts, parts * 0], axis=-1)  # (count, 2)
