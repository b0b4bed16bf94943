"""Seed generators without a variable.

Private: `keras.random.SeedGenerator._initial_seed`. Keras's dropout on torch reads it: without a
number there it takes torch's global generator and never asks for the seed. Holds for Keras 3.15,
which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/torch/random.py
Remove when Keras's dropout takes its seed from `SeedGenerator.next` on each backend.
"""

import keras


class UnstoredSeedGenerator(keras.random.SeedGenerator):
    """Base class of a seed generator without a variable; a subclass defines `next`."""

    _initial_seed = 0

    def __init__(self):
        pass  # the parent's constructor would create a variable
