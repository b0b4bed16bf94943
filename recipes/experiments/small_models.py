"""Small causal models of the experiments."""

import keras

from keras_attn import depth, layers, losses, models


def language_model(vocabulary_size, make_block, num_layers, width, position=None):
    """Return a compiled model of the blocks that `make_block(index)` returns."""
    model = models.CausalLanguageModel(
        layers.TokenEmbedding(vocabulary_size, width),
        depth.Stack(make_block, num_layers),
        position=position,
    )
    model.compile(keras.optimizers.Adam(1e-3), losses.LabelSmoothedCrossentropy(0.0))
    return model


def attention(**arguments):
    """Return a causal layer of 4 heads of size 16."""
    return layers.MultiHeadAttention(4, 16, **{"pattern": "causal", **arguments})
