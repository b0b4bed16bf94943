"""Dropout of our layers and models."""

import keras

from keras_attn.ops.random import replica_seeds
from keras_attn.registry import Configurable, register


@register
class Dropout(Configurable, keras.layers.Dropout):
    """`keras.layers.Dropout` that draws another mask on each replica of a `tf.distribute` strategy.

    Keras's own draws one and the same mask on all of them: rows of one index in different replicas
    lose the same units.
    """

    depends_on_config_only = True

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        seed = replica_seeds(self.seed_generator)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, seed=seed)
