"""A training step without an optimizer, for its time and memory."""

from ..workload import Task

SHORT = 64


def gradient_task(model, x):
    """The gradient of half the sum of squared outputs by all weights, in a plain graph.

    Args:
        model: a built layer or model.
        x: a tensor (B, T, ...).
    """
    import tensorflow as tf

    weights = [weight.value for weight in model.trainable_variables]

    def step(x):
        with tf.GradientTape() as tape:
            output = model(x, training=True)
        gradients = tape.gradient(output, weights, output_gradients=output)
        # Each gradient is reduced at once, so that only the activations stay in memory.
        return tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients])

    signature = [tf.TensorSpec((x.shape[0], None, *x.shape[2:]), x.dtype)]
    graph = tf.function(step, signature, autograph=False)
    graph(x[:, :SHORT])  # allocates the memory of the graph itself
    return Task(call=lambda: float(graph(x)), units=x.shape[0] * x.shape[1])
