"""Dropout of our layers and models."""

import keras

from keras_attn.ops.random import replica_generator
from keras_attn.registry import Configurable, register


@register
class Dropout(Configurable, keras.layers.Dropout):
    """`keras.layers.Dropout` that draws a different mask on each replica.

    Keras draws the same mask on all replicas.
    """

    depends_on_config_only = True

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        seed = replica_generator(self.seed_generator)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, seed=seed)
