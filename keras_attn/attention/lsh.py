"""Hashing vectors so that those in similar directions are likely to get the same number."""

import math

from keras import ops

from keras_attn.attention.block_local import windows
from keras_attn.attention.positions import head_positions
from keras_attn.attention.softmax import merge
from keras_attn.ops.random import stateless_normal
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis
from keras_attn.ops.sorting import permute, row_starts, sort_order

# More buckets are made of two smaller numbers, or choosing one would cost more than attention.
MOST_AT_ONCE = 128


def default_buckets(num_keys, chunk_length):
    """Two for each chunk: an int where the number of keys is known, else a tensor."""
    chunks = num_keys // chunk_length
    return 2 * (max(chunks, 1) if isinstance(chunks, int) else ops.maximum(chunks, 1))


def hash_directions(x, num_buckets, num_rounds, seed):
    """Buckets of the vectors in each round: where along random axes a vector points furthest.

        bucket(x) = argmax([x R ; -x R]),   R normal (H, num_buckets / 2)

    Vectors of the same direction share a bucket, others the more likely the smaller their angle.
    More than 128 buckets are pairs of two such numbers. Each head and round has axes of its own.
    Time O(rounds S H sqrt(num_buckets)) per head, or O(rounds S H num_buckets) up to 128.

    Args:
        x: (B, N, S, H). num_buckets: even int or int tensor. num_rounds: int.
        seed: int, or int32 (2,), which may be a tensor.

    Returns:
        int32 (B, N, num_rounds, S), in [0, num_buckets) or, in pairs, less than the next product
        of two even numbers.
    """
    x = ops.cast(ops.stop_gradient(x), "float32")
    seed = ops.cast([seed, 0] if isinstance(seed, int) else seed, "int32")
    first, second = _factors(num_buckets)
    buckets = _furthest(x, first, num_rounds, seed)
    if second is None:
        return buckets
    others = _furthest(x, second, num_rounds, seed + 1)
    if not isinstance(num_buckets, int):
        others = others * ops.cast(num_buckets > MOST_AT_ONCE, "int32")
    return buckets + first * others


def _factors(num_buckets):
    """Even numbers that make so many pairs; None for a second that is not needed."""
    if isinstance(num_buckets, int):
        if num_buckets <= MOST_AT_ONCE:
            return num_buckets, None
        first = 2 * math.ceil(math.sqrt(num_buckets) / 2)
        return first, 2 * math.ceil(num_buckets / first / 2)
    root = ops.cast(ops.ceil(ops.sqrt(ops.cast(num_buckets, "float32")) / 2), "int32")
    first = ops.where(num_buckets > MOST_AT_ONCE, 2 * root, num_buckets)
    return first, 2 * ((num_buckets + 2 * first - 1) // (2 * first))


def _furthest(x, count, num_rounds, seed):
    """Which of `count` directions, half the axes and half their opposites, (B, N, rounds, S)."""
    half = count // 2
    num_heads, width = x.shape[1], x.shape[3]
    axes = stateless_normal((num_heads, width, num_rounds * half), seed)
    along = ops.matmul(x, axes)  # (B, N, S, rounds * half)
    along = ops.reshape(along, (size(x, 0), num_heads, size(x, 2), num_rounds, half))
    # Four times faster than argmax([along, -along]).
    furthest, axis = ops.top_k(ops.abs(along), 1)
    opposite = ops.max(along, axis=-1, keepdims=True) < furthest
    directions = ops.cast(axis, "int32") + half * ops.cast(opposite, "int32")
    return ops.transpose(directions[..., 0], (0, 1, 3, 2))


def places(inverse, buckets, chunk_length, across_buckets):
    """Numbers of which a query's is its key's or one more if they meet.

    Args:
        inverse, buckets: int32 (B, N, rounds, S), the place of each position in the order of
            buckets, and its bucket.
    """
    chunks = inverse // chunk_length
    # A later bucket lies in a later chunk or the same one: two more tell them apart.
    return chunks if across_buckets else chunks + 2 * buckets


def meet(i, j):
    """Whether the place of a query is that of a key or one more."""
    return ops.logical_and(i >= j, i <= j + 1)


def sorted_rounds(operands, buckets, chunk_length, *, causal, across_buckets=False, wrap=False):
    """Attention to other positions of the same chunk and the one before, joined over rounds.

    Time O(rounds S (chunk_length + log S)) and memory O(rounds S) per head.

    Args:
        operands: `AttentionInputs` of as many queries as keys.
        buckets: int32 (B, N, rounds, S).
        chunk_length, causal, across_buckets, wrap: as `keras_attn.patterns.LSH` has them.

    Returns:
        Output (B, N, S, Hv) and log weight (B, N, S, 1).
    """
    order, inverse = sort_order(buckets)
    place = places(inverse, buckets, chunk_length, across_buckets)
    # Positions are told to `windows` as numbers of rows, by which more can be looked up.
    starts = row_starts(operands.query)
    numbers = range(buckets.shape[2])
    order, inverse = ([x[:, :, r] + starts for r in numbers] for x in (order, inverse))
    place, buckets = ([ops.reshape(x[:, :, r], (-1,)) for r in numbers] for x in (place, buckets))
    length = operands.query.shape[2]
    block = chunk_length if length is None else min(chunk_length, length)
    condition = _by_row(operands)

    def sort(r):
        def permuted(x):
            return permute(x, order[r], inverse[r])

        query = permuted(operands.query)
        key = query if operands.key is operands.query else permuted(operands.key)
        real = operands.real
        if real is not None:
            real = ops.broadcast_to(real, sizes(operands.key)[:3])
            real = ops.take(ops.reshape(real, (-1,)), order[r], axis=0)
        elif wrap:
            real = ops.ones(sizes(operands.key)[:3], dtype="bool")
        return operands.part(r).replace(
            query=query,
            key=key,
            value=permuted(operands.value),
            query_positions=order[r],
            key_positions=order[r],
            real=real,
            condition=condition,
        )

    def allowed(r):
        def pairs(i, j):
            both = j < i if causal else j != i
            if not across_buckets:
                both = ops.logical_and(both, _look_up(buckets[r], i) == _look_up(buckets[r], j))
            if wrap:
                return both
            for earlier in place[:r]:
                met = meet(_look_up(earlier, i), _look_up(earlier, j))
                both = ops.logical_and(both, ops.logical_not(met))
            return both

        return pairs

    def attend(r, sorted_operands):
        output, log_weight = windows(sorted_operands, allowed(r), block, before=1, log_weight=True)
        return permute(output, inverse[r], order[r]), permute(log_weight, inverse[r], order[r])

    if not wrap:
        return merge([attend(r, sort(r)) for r in numbers])
    rounds = [sort(r) for r in numbers]
    return merge([attend(r, _after(rounds[r - 1], rounds[r], block)) for r in numbers])


def _after(previous, operands, block):
    """The same, with the last chunk of the previous round's keys before its own."""
    length = size(operands.query, 2)
    start = (ceil_div(length, block) - 1) * block

    def joined(name):
        before, own = getattr(previous, name), getattr(operands, name)
        last = slice_axis(before, start, length - start, axis=2)
        return ops.concatenate([pad(last, 0, block - (length - start)), own], axis=2)

    names = ("key", "value", "key_positions", "real")
    return operands.replace(**{name: joined(name) for name in names})


def _by_row(operands):
    """The condition of `operands` as one on numbers of rows."""
    condition = operands.condition
    if condition is None:
        return None
    positions = head_positions(operands.key_positions)
    positions = ops.broadcast_to(positions, sizes(operands.key)[:3])
    positions = ops.reshape(positions, (-1,))
    return lambda i, j: condition(_look_up(positions, i), _look_up(positions, j))


def _look_up(table, indices):
    return ops.take(table, indices, axis=0)
