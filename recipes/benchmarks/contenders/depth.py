"""A training step of blocks one after another, by three ways to keep what the gradient needs."""

from recipes.benchmarks.contenders.attention_inputs import sequence
from recipes.benchmarks.floor import HEAD_DIM
from recipes.benchmarks.task import Task

DROPOUT = 0.1
SHORT = 64


def training_step(kind, num_layers, batch, length, width, plan="auto"):
    """The gradient of half the sum of squared outputs by all weights, in a plain graph.

    Args:
        kind: string. "plain", "remat" or "reversible".
        num_layers, batch, length: ints.
        width: int, a multiple of the head size.
        plan: as that of `MultiHeadAttention`.
    """
    import numpy as np
    import tensorflow as tf

    from keras_attn.depth import Reversible, Stack
    from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(width // HEAD_DIM, HEAD_DIM, pattern="causal", plan=plan),
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
    weights = [weight.value for weight in depth.trainable_variables]

    def step(x):
        with tf.GradientTape() as tape:
            output = depth(x, training=True)
        gradients = tape.gradient(output, weights, output_gradients=output)
        # Each is used up at once, so that what is kept is what the gradient needs.
        return tf.add_n([tf.reduce_sum(gradient**2) for gradient in gradients])

    signature = [tf.TensorSpec((batch, None, width), x.dtype)]
    graph = tf.function(step, signature, autograph=False)
    graph(x[:, :SHORT])  # What the graph itself takes, for any length, is there from here on.
    return Task(call=lambda: float(graph(x)), units=batch * length)
