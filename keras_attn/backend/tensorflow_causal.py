"""Exact causal attention on TensorFlow, for a length that is known when a graph is built.

The second half of a sequence attends to the whole first half, without a mask. Within both halves
attention is causal again, so they are halved in turn, until blocks are short: these get the mask.
Each step multiplies squares of scores, of one head or a few, that fit into a processor's cache.
"""

import dataclasses

import tensorflow as tf

from keras_attn.backend.tensorflow_graphs import delay_until
from keras_attn.backend.tensorflow_loops import repeat, stack_tiles, zeros_in_step
from keras_attn.compat.tensorflow_control_flow import is_in_xla

FORBIDDEN = -1e30  # as `attention.softmax` has it
# The exponentials of logits up to this size, and their sums, are far from the bounds of float32 and
# bfloat16: the greatest logit need not be found and subtracted. A gradient of 1e-16, divided by a
# sum of such, is not rounded to zero.
LARGEST_LOGIT = 40.0


def attend_causal(query, key, value, key_mask, block, num_doublings, most_scores):
    if is_in_xla() or query.shape[0] == 0:  # a list of no tiles has no shape
        return None
    _, num_heads, length, _ = query.shape
    padded = block * 2**num_doublings  # no query attends to a key that is added at the end
    num_rows = num_heads * (query.shape[0] or tf.shape(query)[0])
    known = num_rows if isinstance(num_rows, int) else num_heads
    together = _heads_at_once(known, (padded // 2) ** 2, most_scores)

    def cut(x):  # (B, N, T, H) -> (groups, heads, padded, H)
        x = tf.pad(x, [[0, 0], [0, 0], [0, padded - length], [0, 0]]) if padded > length else x
        return tf.reshape(x, (-1, together, padded, x.shape[3]))

    def join(x):
        return tf.reshape(x, (-1, num_heads, padded, x.shape[3]))[:, :, :length]

    def for_each_group(method, tensors, widths):
        """Return the results of a method of `_Halves` for each group of heads, stacked."""

        def compute(query, key, *others):
            def run(is_small):
                halves = _Halves(block, most_scores, is_small)
                return tuple(getattr(halves, method)(query, key, *others))

            return tf.cond(_are_small(query, key), lambda: run(True), lambda: run(False))

        dtypes = [_exact(query).dtype] * len(widths)
        stacks = stack_tiles(compute, tensors, len(tensors), num_rows // together, 1, dtypes)
        shapes = [(None, together, padded, width) for width in widths]
        return [tf.ensure_shape(x, shape) for x, shape in zip(stacks, shapes, strict=True)]

    penalties = []
    if key_mask is not None:
        real = tf.expand_dims(tf.broadcast_to(key_mask, tf.shape(query)[:3]), 3)
        real = tf.ensure_shape(real, (*query.shape[:3], 1))
        penalties = [cut(tf.where(real, tf.zeros((), _exact(query).dtype), -FORBIDDEN))]

    @tf.custom_gradient
    def run(query, key, value):
        heads = [cut(x) for x in (query, key, value)]
        total, weight, top = for_each_group("sums", [*heads, *penalties], (value.shape[3], 1, 1))
        has_key = weight > 0
        weight = tf.where(has_key, weight, 1)
        output = join(total / weight)
        log_weight = join(tf.where(has_key, top + tf.math.log(weight), FORBIDDEN))

        def gradient(upstream, by_log_weight):
            upstream = _exact(upstream)
            mean = tf.reduce_sum(upstream * output, -1, keepdims=True) - by_log_weight
            own = tf.cast(cut(upstream) / weight, value.dtype), cut(mean) / weight, top
            # The weights are computed again only when the backward pass has come here.
            again = [delay_until(upstream)(heads[0]), *heads[1:]]
            widths = [x.shape[3] for x in (query, key, value)]
            gradients = for_each_group("gradients", [*again, *own, *penalties], widths)
            return [tf.cast(join(x), value.dtype) for x in gradients]

        return (tf.cast(output, value.dtype), log_weight), gradient

    return run(query, key, value)


def _heads_at_once(num_heads, scores, most_scores):
    """Return how many of the heads, a divisor, have at most so many scores; at least 1."""
    divisors = [n for n in range(1, num_heads + 1) if num_heads % n == 0]
    return max(n for n in divisors if n == 1 or n * scores <= most_scores)


def _are_small(query, key):
    """Return True if no logit of these queries and keys can be above `LARGEST_LOGIT`."""
    squares = [tf.reduce_max(tf.reduce_sum(tf.square(_exact(x)), -1)) for x in (query, key)]
    return squares[0] * squares[1] < LARGEST_LOGIT**2


def _exact(x):
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


@dataclasses.dataclass(frozen=True)
class _Halves:
    """Causal attention of tensors (c, n, .), where n is `block` times a power of two.

    Results are at least float32. If `is_small`, no logit needs the greatest one subtracted, `top`.
    The penalty (c, n, 1) of keys is subtracted from their logits; it may be None.
    """

    block: int
    most_scores: int
    is_small: bool

    def sums(self, query, key, value, penalty=None):
        """Return the weighted sum of the values, the sum of weights, and `top`."""
        total, weight, *top = self._sums(query, key, value, penalty)
        return total, weight, *(top or [tf.zeros_like(weight)])

    def _sums(self, query, key, value, penalty):
        length = query.shape[1]
        if length == self.block:
            widths = [value.shape[2], 1, 1][: 2 if self.is_small else 3]
            return self._for_blocks(self._square_sums, (query, key, value, penalty), widths)
        near = self._sums(*map(_fold, (query, key, value, penalty)))
        first, second = zip(*map(_halves_of_folded, near), strict=True)
        keys = [_halves(x)[0] for x in (key, value, penalty)]
        query = _after(near, _halves(query)[1])
        parts = self._num_parts(query)
        if parts == 1:
            far = self._square_sums(query, *keys)
        else:
            rows, dtypes = [_cut_rows(query, parts)], [near[0].dtype] * len(near)
            far = stack_tiles(lambda x: self._square_sums(x, *keys), rows, 1, parts, 1, dtypes)
            far = [_join_rows(x, y) for x, y in zip(far, second, strict=True)]
        return [_join(*pair) for pair in zip(first, _merge(second, far), strict=True)]

    def gradients(self, query, key, value, upstream, mean, top, penalty=None):
        """Return the gradients by query, key and value.

        `upstream`, by the output, and its `mean` over keys (c, n, 1) are divided by the sum of
        weights.
        """
        length, rows, keys = query.shape[1], (query, upstream, mean, top), (key, value, penalty)
        if length == self.block:
            widths = [x.shape[2] for x in (query, key, value)]
            return self._for_blocks(self._square_gradients, (*rows, *keys), widths)
        near = self.gradients(*map(_fold, (query, key, value, upstream, mean, top, penalty)))
        keys = [_halves(x)[0] for x in keys]
        query, *rows = [_halves(x)[1] for x in rows]
        rows = [_after(near, query), *rows]
        parts = self._num_parts(query)
        if parts == 1:
            far = self._square_gradients(*rows, *keys)
        else:
            tiles = [_cut_rows(x, parts) for x in rows]

            def body(i, array, sums):
                by_query, *by_keys = self._square_gradients(*(x[i] for x in tiles), *keys)
                sums = [total + x for total, x in zip(sums, by_keys, strict=True)]
                return i + 1, array.write(i, by_query), sums

            array = tf.TensorArray(near[0].dtype, size=parts)
            sums = [zeros_in_step(_exact(x)) for x in keys[:2]]
            _, array, sums = repeat(body, parts, 1, (array, sums))
            far = _join_rows(array.stack(), query), *sums
        (first, by_query), *pairs = map(_halves_of_folded, near)
        by_keys = [_join(x + more, y) for (x, y), more in zip(pairs, far[1:], strict=True)]
        return _join(first, by_query + far[0]), *by_keys

    def _for_blocks(self, compute, tensors, widths):
        """Compute results (c, t, width) for the blocks of tensors (c, t, .), some at a time."""
        count, parts = tensors[0].shape[0], 1
        while count % (2 * parts) == 0 and count * self.block**2 > 2 * parts * self.most_scores:
            parts *= 2
        if parts == 1:
            return compute(*tensors, has_future=True)
        present = [tf.reshape(x, (parts, -1, *x.shape[1:])) for x in tensors if x is not None]
        missing = [None] * (len(tensors) - len(present))  # the last: a penalty
        results = stack_tiles(
            lambda *tile: compute(*tile, *missing, has_future=True),
            present,
            len(present),
            parts,
            1,
            [_exact(present[0]).dtype] * len(widths),
        )
        shapes = [(count, self.block, width) for width in widths]
        return [tf.reshape(x, shape) for x, shape in zip(results, shapes, strict=True)]

    def _num_parts(self, query):
        """Return into how many parts queries (c, n, .) are cut, each of which attends to n keys."""
        count, length, _ = query.shape
        parts = 1
        while parts * self.block < length and count * length**2 > parts * self.most_scores:
            parts *= 2
        return parts

    def _square_sums(self, query, key, value, penalty, has_future=False):
        """Compute `_sums` of queries (c, t, .) and all keys (c, s, .), without or with a mask."""
        logits = _exact(tf.matmul(query, key, transpose_b=True))
        if penalty is not None:
            logits -= tf.linalg.matrix_transpose(penalty)
        if has_future:
            logits -= tf.linalg.matrix_transpose(_penalty_of_future(query))
        top = []
        if not self.is_small:
            # Above the logits of forbidden keys, which then weigh nothing.
            top = [tf.maximum(tf.reduce_max(logits, -1, keepdims=True), 0.5 * FORBIDDEN)]
            logits -= top[0]
        weights = tf.exp(logits)
        total = _exact(tf.matmul(tf.cast(weights, value.dtype), value))
        return [total, tf.reduce_sum(weights, -1, keepdims=True), *top]

    def _square_gradients(self, query, upstream, mean, top, key, value, penalty, has_future=False):
        """Compute `gradients` from logits (c, s, t): so most products need no transposition."""
        logits = _exact(tf.matmul(key, query, transpose_b=True))
        if penalty is not None:
            logits -= penalty
        if has_future:
            logits -= _penalty_of_future(query)
        if not self.is_small:
            logits -= tf.linalg.matrix_transpose(top)
        weights = tf.exp(logits)
        slopes = _exact(tf.matmul(value, upstream, transpose_b=True))
        slopes = weights * (slopes - tf.linalg.matrix_transpose(mean))
        weights, slopes = tf.cast(weights, value.dtype), tf.cast(slopes, value.dtype)
        by_query = tf.matmul(slopes, key, transpose_a=True)
        return [_exact(x) for x in (by_query, slopes @ query, weights @ upstream)]


def _penalty_of_future(query):
    """Return the penalty (t, t) of each key of a block for a query before it."""
    index = tf.range(query.shape[1])
    is_future = tf.expand_dims(index, 1) > tf.expand_dims(index, 0)
    return tf.where(is_future, tf.constant(-FORBIDDEN, _exact(query).dtype), 0.0)


def _merge(parts, others):
    """Return the sums of both; the last of three is what was subtracted from logits."""
    if len(parts) == 2:
        return [x + y for x, y in zip(parts, others, strict=True)]
    top = tf.maximum(parts[2], others[2])
    one, other = tf.exp(parts[2] - top), tf.exp(others[2] - top)
    return [*(x * one + y * other for x, y in zip(parts[:2], others[:2], strict=True)), top]


def _fold(x):
    """(c, n, .) -> (2c, n / 2, .); None stays."""
    return None if x is None else tf.reshape(x, (-1, x.shape[1] // 2, x.shape[2]))


def _halves(x):
    """(c, n, .) -> (c, n / 2, .), twice; None stays."""
    return (None, None) if x is None else _halves_of_folded(_fold(x))


def _halves_of_folded(x):
    """(2c, n / 2, .) -> (c, n / 2, .), twice."""
    return tf.unstack(tf.reshape(x, (-1, 2, *x.shape[1:])), axis=1)


def _join(first, second):
    """(c, n / 2, .), twice -> (c, n, .)."""
    return tf.reshape(tf.stack([first, second], axis=1), (-1, 2 * first.shape[1], first.shape[2]))


def _cut_rows(x, parts):
    """(c, n, .) -> (parts, c, n / parts, .)."""
    count, length, width = x.shape
    return tf.transpose(tf.reshape(x, (count, parts, length // parts, width)), (1, 0, 2, 3))


def _join_rows(x, like):
    """(parts, c, n / parts, .) -> (c, n, .), the shape of `like`."""
    return tf.reshape(tf.transpose(x, (1, 0, 2, 3)), like.shape)


def _after(tensors, x):
    """Return x, available only after the tensors: else TensorFlow computes both at once."""
    with tf.control_dependencies(tensors):
        return tf.identity(x)
