"""The four layer types of Vaswani et al., Table 1, in Keras: sequence of `length` x `width`."""

from ..operations import HEAD_DIM
from .attention_inputs import sequence
from .attention_tensorflow import graph_task

RESTRICTION, KERNEL = 128, 7


def self_attention(length, width):
    """All pairs, in heads of one size; without projections, which the paper's count leaves out."""
    from keras_attn.patterns import Dense

    return _attention(Dense(), length, width)


def restricted_self_attention(length, width):
    """A window of `RESTRICTION` keys before each query."""
    from keras_attn.patterns import Local

    return _attention(Local(RESTRICTION), length, width)


def recurrent(length, width):
    """`keras.layers.LSTM`."""
    import keras

    return _layer(keras.layers.LSTM(width, return_sequences=True), length, width)


def convolutional(length, width):
    """`keras.layers.Conv1D` over `KERNEL` positions."""
    import keras

    return _layer(keras.layers.Conv1D(width, KERNEL, padding="causal"), length, width)


def _attention(pattern, length, width):
    from keras import ops

    from keras_attn.attention.inputs import AttentionInputs, PositionRange
    from keras_attn.scores import DotProduct

    positions = PositionRange(0, length)

    def attend(x):
        x = ops.reshape(x, (1, length, width // HEAD_DIM, HEAD_DIM))
        x = ops.transpose(x, (0, 2, 1, 3))
        inputs = AttentionInputs(x, x, x, positions, positions, DotProduct())
        return pattern.for_call(inputs, None, None).plan.attend(inputs)[0]

    return graph_task(attend, [sequence(length, width)], gflop=1.0)


def _layer(layer, length, width):
    layer.build((1, length, width))
    return graph_task(layer, [sequence(length, width)], gflop=1.0)
