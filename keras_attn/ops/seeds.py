"""Random numbers that can be drawn again."""

import keras


class RepeatedSeed(keras.random.SeedGenerator):
    """A generator that draws the same numbers each time, from a seed that may be a tensor.

    What a backward pass computes again must drop the same weights again.
    """

    def __init__(self, seed):
        # Not the parent's, which would make a variable.
        self._seed = seed

    def next(self, ordered=True):
        return self._seed
