"""Layers of keras_attn, each written as one expression of its public names."""

from ..workload import Task
from .attention_inputs import sequence


def step(expression, length, width, backward=False, jit_compile=False):
    """A layer on one sequence; with gradients of the inputs and of all weights if `backward`."""
    layer = build(expression, length, width)
    return layer_task(layer, layer.trainable_variables, length, width, backward, jit_compile)


def all_experts(expression, length, width, backward=False, jit_compile=False):
    """The function of a `MixtureOfExperts` of plain experts, each computed at each position."""
    from keras import ops

    layer = build(expression, length, width)
    kernels, biases = layer.kernels, layer.biases

    def call(x, training):
        probabilities = ops.softmax(ops.matmul(x, layer.router_kernel))  # (B, T, E)
        least_chosen = ops.top_k(probabilities, layer.top_k)[0][..., -1:]
        chosen = ops.where(probabilities >= least_chosen, probabilities, 0.0)
        hidden = ops.relu(ops.einsum("btd,edf->betf", x, kernels[0]) + biases[0][:, None])
        output = ops.einsum("betf,efd->betd", hidden, kernels[1]) + biases[1][:, None]
        weights = chosen / ops.sum(chosen, axis=-1, keepdims=True)
        return ops.einsum("betd,bte->btd", output, weights)

    return layer_task(call, layer.trainable_variables, length, width, backward, jit_compile)


def build(expression, length, width):
    """Return the built layer of an expression, such as `FeedForward(512)`."""
    import keras_attn
    from keras_attn import feed_forward, layers, norms, patterns, positions, residuals, scores

    axes = (feed_forward, norms, patterns, positions, residuals, scores, layers)
    names = {name: value for axis in axes for name, value in vars(axis).items()}
    layer = eval(expression, names | {"keras_attn": keras_attn})
    layer.build((1, length, width))
    return layer


def layer_task(layer, weights, length, width, backward, jit_compile):
    """A `Task` of a layer, or of a function that is called as one, in one graph."""
    import tensorflow as tf

    from keras_attn.layers import MultiHeadAttention

    x = tf.constant(sequence(length, width))

    def call(x):
        inputs = (x, x) if isinstance(layer, MultiHeadAttention) else (x,)
        return layer(*inputs, training=backward)

    def with_gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = call(x)
        return tape.gradient(output, (x, *weights), output_gradients=output)

    graph = tf.function(
        with_gradients if backward else call, autograph=False, jit_compile=jit_compile
    )
    return Task(call=lambda: graph(x), units=length)
