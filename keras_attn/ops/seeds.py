"""Random numbers that can be drawn again."""

import keras
from keras import ops


class RepeatedSeed(keras.random.SeedGenerator):
    """A generator that draws the same numbers each time, from a seed that may be a tensor.

    What a backward pass computes again must drop the same weights again.
    """

    def __init__(self, seed):
        # Not the parent's, which would make a variable.
        self._initial_seed = seed

    def next(self, ordered=True):
        # JAX takes keys of no other type.
        is_jax = keras.backend.backend() == "jax"
        return ops.cast(self._initial_seed, "uint32") if is_jax else self._initial_seed


def seeds_of_parts(seed, count):
    """A seed int32 (2,) for each of `count` parts, from the seed of all of them."""
    # Not beside each other, where the seeds of the next calls are.
    parts = ops.arange(count, dtype="int32") * 32452843
    return ops.cast(seed, "int32") + ops.stack([parts, parts * 0], axis=-1)  # (count, 2)
