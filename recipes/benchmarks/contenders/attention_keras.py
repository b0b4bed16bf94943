"""Keras and KerasHub: exact attention with the whole matrix of scores."""

from ..operations import HEAD_DIM, HEADS
from .attention_inputs import heads, sequence
from .attention_tensorflow import graph_task


def core(length, gflop, causal, backward=False):
    """`keras.ops.dot_product_attention`."""
    from keras import ops

    def attend(query, key, value):
        return ops.dot_product_attention(query, key, value, is_causal=causal)

    return graph_task(attend, heads(length, heads_first=False), gflop, backward)


def layer(length, gflop, backward=False):
    """`keras.layers.MultiHeadAttention`, causal."""
    import keras

    attention = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    return _task(attention, length, gflop, backward, use_causal_mask=True)


def hub_layer(length, gflop, backward=False):
    """`keras_hub.layers.CachedMultiHeadAttention`, with the mask that KerasHub's decoder makes."""
    import keras_hub
    from keras import ops

    places = ops.arange(length)
    mask = (places[:, None] >= places[None, :])[None]
    attention = keras_hub.layers.CachedMultiHeadAttention(HEADS, HEAD_DIM)
    return _task(attention, length, gflop, backward, attention_mask=mask)


def _task(attention, length, gflop, backward, **arguments):
    shape = (1, length, HEADS * HEAD_DIM)
    attention.build(shape, shape)
    weights = attention.trainable_variables
    return graph_task(
        lambda x: attention(x, x, **arguments), [sequence(length)], gflop, backward, weights
    )
