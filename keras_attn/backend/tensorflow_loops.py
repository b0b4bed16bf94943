"""Loops over tiles on TensorFlow."""

import tensorflow as tf

from keras_attn.backend.tensorflow_graphs import delay_until, first_float


def loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once):
    num_tiles, num_seen = len(tiles), len(tiles) + len(keys)
    count = (tiles[0].shape[0] or tf.shape(tiles[0])[0]) // len(visible)

    @tf.custom_gradient
    def run(*operands):
        def part(x, n):
            return x if len(visible) == 1 else x[n * count : (n + 1) * count]

        def group(n):
            # Sliced here, so that the backward pass keeps the whole tensors only.
            own = [part(x, n) for x in operands[:num_tiles]]
            seen = [x[:, :, : visible[n]] for x in operands[num_tiles:num_seen]]
            return [*own, *seen, *operands[num_seen:]]

        def forward(n):
            return stack_tiles(compute, group(n), num_tiles, count, at_once, dtypes)

        def gradient(*upstream):
            def backward(n):
                parts = [part(x, n) for x in upstream]
                return _tile_gradients(compute, group(n), num_tiles, count, at_once, parts)

            def join(n, parts):
                if parts[0] is None:
                    return None
                if n < num_tiles:
                    return tf.concat(parts, 0)
                return _sum_of_growing(parts, visible) if n < num_seen else sum(parts[1:], parts[0])

            gradients = zip(*_one_after_another(backward, len(visible)), strict=True)
            return [join(n, parts) for n, parts in enumerate(gradients)]

        results = _one_after_another(forward, len(visible))
        return [tf.concat(parts, 0) for parts in zip(*results, strict=True)], gradient

    results = run(*tiles, *keys, *shared)
    return results if isinstance(results, (list, tuple)) else (results,)


def _one_after_another(compute, count):
    """Return [compute(0), compute(1), ...]; TensorFlow would run them at the same time."""
    results = []
    for n in range(count):
        before = [x for x in tf.nest.flatten(results[-1:]) if x is not None]
        with tf.control_dependencies(before):
            results.append(compute(n))
    return results


def _sum_of_growing(parts, visible):
    """Return the sum of tensors (B, N, visible, .), each longer than the one before."""
    if len(parts) == 1:
        return parts[0]
    lengths = [after - before for before, after in zip((0, *visible), visible)]
    blocks = []
    for n, part in enumerate(parts):
        own = tf.split(part, lengths[: n + 1], axis=2)
        blocks = [*(x + y for x, y in zip(blocks, own)), own[-1]]
    return tf.concat(blocks, 2)


def stack_tiles(compute, operands, num_tiles, count, at_once, dtypes):
    """Return the stacked results of `compute` for each tile."""
    if isinstance(count, int) and count == 1:
        return tuple(tf.expand_dims(x, 0) for x in compute(*_only_tile(operands, num_tiles)))

    def body(i, arrays):
        results = compute(*(x[i] for x in operands[:num_tiles]), *operands[num_tiles:])
        return i + 1, [array.write(i, x) for array, x in zip(arrays, results, strict=True)]

    arrays = [tf.TensorArray(dtype, size=count) for dtype in dtypes]
    _, arrays = repeat(body, count, at_once, (arrays,))
    return tuple(array.stack() for array in arrays)


def _tile_gradients(compute, operands, num_tiles, count, at_once, upstream):
    """Return gradients by the operands: stacked for tiles, summed for shared tensors."""
    floats = [n for n, x in enumerate(operands) if x.dtype.is_floating]
    num_stacked = sum(n < num_tiles for n in floats)  # the others are shared
    if isinstance(count, int) and count == 1:
        only_tile = _only_tile(operands, num_tiles)
        gradients = _gradients_of_tile(
            compute, only_tile, floats, [tf.squeeze(x, 0) for x in upstream]
        )
        gradients = [
            *(tf.expand_dims(x, 0) for x in gradients[:num_stacked]),
            *gradients[num_stacked:],
        ]
    else:
        gradients = _gradients_of_tiles(
            compute, operands, floats, num_tiles, count, at_once, upstream
        )
    by_operand = dict(zip(floats, gradients, strict=True))
    return [by_operand.get(n) for n in range(len(operands))]


def _gradients_of_tile(compute, operands, floats, upstream):
    """Return the gradients by the operands of one tile that have the numbers `floats`."""
    sources = [operands[n] for n in floats]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = compute(*operands)
    return tape.gradient(results, sources, upstream, tf.UnconnectedGradients.ZERO)


def _gradients_of_tiles(compute, operands, floats, num_tiles, count, at_once, upstream):
    """Return the gradients by the operands of all tiles: stacked for tiles, else summed."""
    tiles = [n for n in floats if n < num_tiles]

    def body(i, arrays, sums):
        # A tape records the loop's own tensors only, not those from outside.
        local = [x[i] if n < num_tiles else tf.identity(x) for n, x in enumerate(operands)]
        gradients = _gradients_of_tile(compute, local, floats, [x[i] for x in upstream])
        arrays = [array.write(i, x) for array, x in zip(arrays, gradients)]
        sums = [total + x for total, x in zip(sums, gradients[len(tiles) :])]
        return i + 1, arrays, sums

    arrays = [tf.TensorArray(operands[n].dtype, size=count) for n in tiles]
    sums = [zeros_in_step(operands[n]) for n in floats[len(tiles) :]]
    _, arrays, sums = repeat(body, count, at_once, (arrays, sums))
    pairs = zip(tiles, arrays, strict=True)
    return [*(tf.ensure_shape(array.stack(), operands[n].shape) for n, array in pairs), *sums]


def zeros_in_step(x):
    """Return zeros that exist during a step only: a graph keeps constants for good."""
    return tf.broadcast_to(delay_until(x)(tf.zeros((), x.dtype)), tf.shape(x))


def _only_tile(operands, num_tiles):
    """Return the operands of the only tile."""
    tile = [tf.squeeze(x, 0) for x in operands[:num_tiles]]
    # A graph would compute the mask of all pairs from constant positions in advance, and keep one
    # for each layer and each pass.
    delay = delay_until(first_float(tile))
    tile = [x if x.dtype.is_floating else delay(x) for x in tile]
    return [*tile, *(tf.identity(x) for x in operands[num_tiles:])]


def repeat(body, count, at_once, state):
    options = {"parallel_iterations": at_once, "maximum_iterations": count}
    return tf.while_loop(lambda i, *_: i < count, body, (0, *state), **options)
