"""Training steps without an optimizer, for time and memory of a stack of blocks or of a model."""

from ..operations import HEAD_DIM
from ..workload import Task
from .attention_inputs import sequence

DROPOUT = 0.1
VOCABULARY_SIZE = 256


def stack_step(kind, num_layers, batch, length, width, implementation="auto", policy="float32"):
    """The gradient of half the sum of squared outputs by all weights of a stack.

    The kind is "plain", "remat" or "reversible"; the width is a multiple of the head size.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    keras.config.set_dtype_policy(policy)
    from keras_attn.depth import Reversible, Stack
    from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

    def block(index):
        how = {"pattern": "causal", "implementation": implementation}
        attention = MultiHeadAttention(width // HEAD_DIM, HEAD_DIM, **how)
        norm = {"residual": "pre_norm", "dropout": DROPOUT}
        return TransformerBlock(attention, FeedForward(4 * width), **norm)

    if kind == "reversible":
        depth = Reversible(block, num_layers)
    else:
        depth = Stack(block, num_layers, remat=kind == "remat")
    x = tf.constant(np.repeat(sequence(length, width), batch, axis=0))
    depth.build(x.shape)
    return gradient_task(depth, x)


def language_model_step(options):
    """The gradient of half the sum of squared logits, of the model of a command line."""
    import numpy as np
    import tensorflow as tf

    from ...language_model.architectures import build
    from ...language_model.options import RecipeOptions

    options = RecipeOptions.parse(options)
    ids = np.random.default_rng(0).integers(1, VOCABULARY_SIZE, (1, options.context), "int32")
    return gradient_task(build(options, VOCABULARY_SIZE), tf.constant(ids))


def gradient_task(model, x):
    """The gradient of half the sum of squared outputs by all weights, in a plain graph.

    The model or layer is built, and reads the tensor x (B, T, ...). The fact `tensors_mb` is the
    most that TensorFlow's allocator has given out in a step for tensors, less weights and inputs.
    """
    import tensorflow as tf

    weights = [weight.value for weight in model.trainable_variables]

    def step(x):
        with tf.GradientTape() as tape:
            output = model(x, training=True)
        gradients = tape.gradient(output, weights, output_gradients=output)
        # Each gradient is reduced at once, so that only the activations stay in memory.
        return tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients])

    # The length is static: layers choose their implementation by it.
    signature = [tf.TensorSpec(x.shape, x.dtype)]
    graph = tf.function(step, signature, autograph=False)
    graph.get_concrete_function()
    held, facts = _tensors("current"), {}
    tf.config.experimental.reset_memory_stats("CPU:0")

    def call():
        value = float(graph(x))
        facts["tensors_mb"] = (_tensors("peak") - held) / 1e6
        return value

    return Task(call, units=x.shape[0] * x.shape[1], facts=facts)


def _tensors(which):
    """Return the bytes of all tensors, "current" or at their "peak"."""
    from tensorflow import config

    return config.experimental.get_memory_info("CPU:0")[which]
