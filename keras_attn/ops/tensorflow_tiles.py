"""`for_each_tile` on TensorFlow: loops that run eagerly, in graphs and under XLA."""

import tensorflow as tf


def for_each_tile(compute, tiles, shared, dtypes):
    num_tiles = len(tiles)
    count = tiles[0].shape[0] or tf.shape(tiles[0])[0]

    @tf.custom_gradient
    def run(*operands):
        def forward(i):
            return compute(*(x[i] for x in operands[:num_tiles]), *operands[num_tiles:])

        def gradient(*upstream):
            return _gradients(compute, operands, num_tiles, upstream, count)

        return _stack(forward, count, dtypes), gradient

    results = run(*tiles, *shared)
    return results if isinstance(results, (list, tuple)) else (results,)


def _stack(compute, count, dtypes):
    """The results of `compute(i)` for each i < count."""

    def body(i, arrays):
        results = compute(i)
        return i + 1, [array.write(i, x) for array, x in zip(arrays, results, strict=True)]

    arrays = [tf.TensorArray(dtype, size=count) for dtype in dtypes]
    _, arrays = tf.while_loop(
        lambda i, _: i < count, body, (0, arrays), parallel_iterations=1, maximum_iterations=count
    )
    return tuple(array.stack() for array in arrays)


def _gradients(compute, operands, num_tiles, upstream, count):
    """Of the operands: stacked for those that come in tiles, summed for those that are shared."""
    is_float = [x.dtype.is_floating for x in operands]
    tiles = [i for i, x in enumerate(is_float) if x and i < num_tiles]
    shared = [i for i, x in enumerate(is_float) if x and i >= num_tiles]

    def body(i, arrays, sums):
        # A tape follows the loop's own tensors only, not those from outside.
        local = [x[i] if n < num_tiles else tf.identity(x) for n, x in enumerate(operands)]
        sources = [local[n] for n in (*tiles, *shared)]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = compute(*local)
        gradients = tape.gradient(
            results, sources, [x[i] for x in upstream], tf.UnconnectedGradients.ZERO
        )
        arrays = [array.write(i, x) for array, x in zip(arrays, gradients)]
        sums = [total + x for total, x in zip(sums, gradients[len(tiles) :])]
        return i + 1, arrays, sums

    arrays = [tf.TensorArray(operands[n].dtype, size=count) for n in tiles]
    sums = [tf.zeros_like(operands[n]) for n in shared]
    _, arrays, sums = tf.while_loop(
        lambda i, *_: i < count,
        body,
        (0, arrays, sums),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    gradients = [None] * len(operands)
    for n, array in zip(tiles, arrays):
        gradients[n] = tf.ensure_shape(array.stack(), operands[n].shape)
    for n, total in zip(shared, sums):
        gradients[n] = total
    return gradients
