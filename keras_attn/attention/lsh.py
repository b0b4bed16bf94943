"""Locality-sensitive hashing of vectors, and attention among vectors of the same hash."""

import math

from keras import ops

from keras_attn.attention.block_local import attend_block_local
from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.softmax import at_least_float32, merge_by_logsumexp
from keras_attn.ops.random import stateless_normal
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis
from keras_attn.ops.sorting import permute, row_starts, sort_order

# More buckets are pairs of two smaller numbers, or choosing one would cost more than attention.
MOST_SINGLE_BUCKETS = 128


def default_buckets(num_keys, chunk_length):
    """Return two buckets for each chunk: an int if the number of keys is known, else a tensor."""
    chunks = num_keys // chunk_length
    return 2 * (max(chunks, 1) if isinstance(chunks, int) else ops.maximum(chunks, 1))


def hash_directions(x, num_buckets, num_rounds, seed):
    """Hash vectors in each round: a bucket is the random axis along which a vector is longest.

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
    x = at_least_float32(ops.stop_gradient(x))
    seed = ops.cast([seed, 0] if isinstance(seed, int) else seed, "int32")
    first, second = _factors(num_buckets)
    buckets = _furthest(x, first, num_rounds, seed)
    if second is None:
        return buckets
    others = _furthest(x, second, num_rounds, seed + 1)
    if not isinstance(num_buckets, int):
        others = others * ops.cast(num_buckets > MOST_SINGLE_BUCKETS, "int32")
    return buckets + first * others


def _factors(num_buckets):
    """Return two even numbers whose product is at least `num_buckets`; None for an unneeded second."""
    if isinstance(num_buckets, int):
        if num_buckets <= MOST_SINGLE_BUCKETS:
            return num_buckets, None
        first = 2 * math.ceil(math.sqrt(num_buckets) / 2)
        return first, 2 * math.ceil(num_buckets / first / 2)
    root = ops.cast(ops.ceil(ops.sqrt(ops.cast(num_buckets, "float32")) / 2), "int32")
    first = ops.where(num_buckets > MOST_SINGLE_BUCKETS, 2 * root, num_buckets)
    return first, 2 * ((num_buckets + 2 * first - 1) // (2 * first))


def _furthest(x, count, num_rounds, seed):
    """Return which of `count` directions, axes and then their opposites, is nearest: (B, N, rounds, S)."""
    half = count // 2
    num_heads, width = x.shape[1], x.shape[3]
    axes = ops.cast(stateless_normal((num_heads, width, num_rounds * half), seed), x.dtype)
    along = ops.matmul(x, axes)  # (B, N, S, rounds * half)
    along = ops.reshape(along, (size(x, 0), num_heads, size(x, 2), num_rounds, half))
    # Four times faster than argmax([along, -along]).
    furthest, axis = ops.top_k(ops.abs(along), 1)
    opposite = ops.max(along, axis=-1, keepdims=True) < furthest
    directions = ops.cast(axis, "int32") + half * ops.cast(opposite, "int32")
    return ops.transpose(directions[..., 0], (0, 1, 3, 2))


def chunk_numbers(inverse, buckets, chunk_length, across_buckets):
    """Return numbers for `meet`: a query's is its key's or one more if they meet.

    Args:
        inverse, buckets: int32 (B, N, rounds, S), the rank of each position in the order of
            buckets, and its bucket.
    """
    chunks = inverse // chunk_length
    # A later bucket lies in a later chunk or the same one: two more tell them apart.
    return chunks if across_buckets else chunks + 2 * buckets


def meet(i, j):
    """Return True where the chunk number of a query is that of a key or one more."""
    return ops.logical_and(i >= j, i <= j + 1)


def attend_lsh(inputs, buckets, chunk_length, *, causal, across_buckets=False, wrap=False):
    """Compute attention to other positions of the same chunk and the one before, over all rounds.

    Time O(rounds S (chunk_length + log S)) and memory O(rounds S) per head.

    Args:
        inputs: `AttentionInputs` of as many queries as keys.
        buckets: int32 (B, N, rounds, S).
        chunk_length, causal, across_buckets, wrap: as `keras_attn.patterns.LSH` has them.

    Returns:
        Output (B, N, S, Hv) and log weight (B, N, S, 1).
    """
    length = inputs.query.shape[2]
    block = chunk_length if length is None else min(chunk_length, length)
    order, inverse = sort_order(buckets)
    chunks = chunk_numbers(inverse, buckets, chunk_length, across_buckets)
    # `attend_block_local` gets row numbers for positions: buckets and chunks are looked up by them.
    starts = row_starts(inputs.query)
    numbers = range(buckets.shape[2])
    order, inverse = ([x[:, :, r] + starts for r in numbers] for x in (order, inverse))
    chunks, buckets = ([ops.reshape(x[:, :, r], (-1,)) for r in numbers] for x in (chunks, buckets))
    mask_fn = _mask_fn_of_rows(inputs)

    def sort(r):
        query = permute(inputs.query, order[r], inverse[r])
        key = query
        if inputs.key is not inputs.query:
            key = permute(inputs.key, order[r], inverse[r])
        key_mask = inputs.key_mask
        if key_mask is not None:
            key_mask = ops.broadcast_to(key_mask, sizes(inputs.key)[:3])
            key_mask = ops.take(ops.reshape(key_mask, (-1,)), order[r], axis=0)
        elif wrap:
            key_mask = ops.ones(sizes(inputs.key)[:3], dtype="bool")
        return inputs.fold_in(r).replace(
            query=query,
            key=key,
            value=permute(inputs.value, order[r], inverse[r]),
            query_positions=order[r],
            key_positions=order[r],
            key_mask=key_mask,
            mask_fn=mask_fn,
        )

    def allowed(r):
        def pairs(i, j):
            met = j < i if causal else j != i
            if not across_buckets:
                met = ops.logical_and(met, _look_up(buckets[r], i) == _look_up(buckets[r], j))
            if wrap:
                return met
            for earlier in chunks[:r]:
                met_before = meet(_look_up(earlier, i), _look_up(earlier, j))
                met = ops.logical_and(met, ops.logical_not(met_before))
            return met

        return pairs

    rounds = [sort(r) for r in numbers]
    if wrap:
        rounds = [_after(rounds[r - 1], rounds[r], block) for r in numbers]
    parts = []
    for r, of_round in zip(numbers, rounds, strict=True):
        found = attend_block_local(of_round, allowed(r), block, before=1, log_weight=True)
        parts.append([permute(x, inverse[r], order[r]) for x in found])
    return merge_by_logsumexp(parts)


def _after(previous, inputs, block):
    """Return inputs with the last chunk of the previous round's keys before their own."""
    length = size(inputs.query, 2)
    start = (ceil_div(length, block) - 1) * block

    def joined(before, own):
        last = slice_axis(before, start, length - start, axis=2)
        return ops.concatenate([pad(last, 0, block - (length - start)), own], axis=2)

    return inputs.replace(
        key=joined(previous.key, inputs.key),
        value=joined(previous.value, inputs.value),
        key_positions=joined(previous.key_positions, inputs.key_positions),
        key_mask=joined(previous.key_mask, inputs.key_mask),
    )


def _mask_fn_of_rows(inputs):
    """Return the `mask_fn` of `inputs` as a function of row numbers."""
    mask_fn = inputs.mask_fn
    if mask_fn is None:
        return None
    positions = positions_by_head(inputs.key_positions)
    positions = ops.broadcast_to(positions, sizes(inputs.key)[:3])
    positions = ops.reshape(positions, (-1,))
    return lambda i, j: mask_fn(_look_up(positions, i), _look_up(positions, j))


def _look_up(table, indices):
    return ops.take(table, indices, axis=0)
