"""TensorFlow: the matrix product of the GEMM rate, and functions as plain graphs."""

from ..workload import Task


def gemm(rows=2048, inner=512, columns=2048):
    """A float32 matrix product; a rate counts GFLOP."""
    import tensorflow as tf

    left, right = tf.random.normal((rows, inner)), tf.random.normal((inner, columns))
    multiply = tf.function(lambda: tf.matmul(left, right))
    return Task(call=multiply, units=2 * rows * inner * columns / 1e9)


def graph_task(function, arrays, gflop, backward=False, weights=()):
    """A `Task` that calls a function in a plain graph, without XLA.

    Args:
        function: of the tensors, one of them or a layer.
        arrays: iterable of the inputs.
        gflop: float. Least operations of one call.
        backward: bool. True to compute the gradients of half the sum of squared outputs too.
        weights: variables whose gradients are computed beside those of the inputs.
    """
    import tensorflow as tf

    inputs = tuple(tf.constant(array) for array in arrays)

    def with_gradients(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return output, tape.gradient(output, (*inputs, *weights), output_gradients=output)

    graph = tf.function(with_gradients if backward else function, autograph=False)
    return Task(call=lambda: graph(*inputs), units=gflop)
