"""Stateless random numbers and seeds."""

import math

import keras
from keras import ops

from keras_attn.backend.replicas import num_replicas, replica_number
from keras_attn.compat.seed_generators import UnstoredSeedGenerator


def stateless_normal(shape, seed):
    """Return normal float32 numbers, equal on every backend, eagerly, in graphs and under XLA.

    TensorFlow's own numbers differ under XLA, so a model would hash differently than in training.
    `shape` is a tuple of ints and int tensors, `seed` int32 (2,).
    """
    count = math.prod(shape)
    key = _mix(_mix(seed[0]) + seed[1])
    numbers = ops.arange(count, dtype="int32")
    radius = ops.sqrt(-2.0 * ops.log(_uniform(numbers, key)))
    angle = 2 * math.pi * _uniform(numbers, _mix(key + 1))
    return ops.reshape(radius * ops.cos(angle), shape)  # Box-Muller transform


def _uniform(numbers, key):
    bits = _shift(_mix(_mix(numbers) + key), 9)
    return (ops.cast(bits, "float32") + 0.5) / 2**23


def _mix(x):
    """Hash integers: each bit depends on all bits of x (Wellons's lowbias32, in signed numbers)."""
    x = ops.bitwise_xor(x, _shift(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _shift(x, 15)) * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, _shift(x, 16))


def _shift(x, bits):
    """Shift right by `bits`; fill with zeros."""
    # By operations that converters know: no bitwise and, and no remainder of a negative number.
    return ops.right_shift(x, bits) + ops.cast(x < 0, "int32") * 2 ** (32 - bits)


class RepeatedSeed(UnstoredSeedGenerator):
    """Seed generator that returns the same seed each time; the seed may be a tensor.

    A function that the backward pass computes again must drop the same weights again.
    """

    def __init__(self, seed):
        super().__init__()
        self._seed = seed

    def next(self, ordered=True):
        # JAX requires keys of this type.
        is_jax = keras.backend.backend() == "jax"
        return ops.cast(self._seed, "uint32") if is_jax else self._seed


def split_seed(seed, count):
    """Return int32 (count, 2): a seed for each of `count` parts, derived from one seed."""
    # Far apart: the seeds of the next calls are adjacent integers.
    parts = ops.arange(count, dtype="int32") * 32452843
    return ops.cast(seed, "int32") + ops.stack([parts, parts * 0], axis=-1)  # (count, 2)


def replica_seed(seed):
    """Return another seed for each replica of a `tf.distribute` strategy; the first keeps its own.

    Replicas have equal states of their generators, so equal seeds would drop the same weights.
    """
    number = replica_number()
    if isinstance(number, int) and number == 0:
        return seed
    part = ops.cast(number, seed.dtype) * 49979687
    return seed + ops.stack([part, part * 0])


def replica_generator(generator):
    """Return the generator, under `tf.distribute` one of this replica's seed of a call."""
    return generator if num_replicas() == 1 else RepeatedSeed(replica_seed(generator.next()))
