"""Attention among neighbours in the order of buckets, in several rounds."""

from keras import ops

from keras_attn.ops.cutting import ceil_div, pad, part_of, size, sizes
from keras_attn.ops.merge import merge
from keras_attn.ops.progression import head_positions
from keras_attn.ops.sorting import permute, row_starts, sort_order
from keras_attn.ops.windows import windows


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
        operands: `Operands` of as many queries as keys.
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
        last = part_of(before, start, length - start, axis=2)
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
