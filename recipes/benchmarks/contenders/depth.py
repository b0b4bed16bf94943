"""A training step of a stack of blocks: plain, recomputed or reversible."""

from ..operations import HEAD_DIM
from .attention_inputs import sequence
from .gradient import gradient_task

DROPOUT = 0.1


def training_step(kind, num_layers, batch, length, width, implementation="auto", policy="float32"):
    """The gradient of half the sum of squared outputs by all weights.

    Args:
        kind: string. "plain", "remat" or "reversible".
        num_layers, batch, length: ints.
        width: int, a multiple of the head size.
        implementation: as that of `MultiHeadAttention`.
        policy: string. The dtype policy of Keras.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    keras.config.set_dtype_policy(policy)
    from keras_attn.depth import Reversible, Stack
    from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(
                width // HEAD_DIM, HEAD_DIM, pattern="causal", implementation=implementation
            ),
            FeedForward(4 * width),
            residual="pre_norm",
            dropout=DROPOUT,
        )

    if kind == "reversible":
        depth = Reversible(block, num_layers)
    else:
        depth = Stack(block, num_layers, remat=kind == "remat")
    x = tf.constant(np.repeat(sequence(length, width), batch, axis=0))
    depth.build(x.shape)
    return gradient_task(depth, x)
