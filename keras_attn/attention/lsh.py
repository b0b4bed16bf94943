"""Locality-sensitive hashing of vectors, and attention among vectors of the same hash."""

import functools
import math

from keras import ops

from keras_attn.attention.block_local import attend_block_local, block_local_tiles
from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.softmax import at_least_float32, merge_by_logsumexp
from keras_attn.attention.tiles import resize
from keras_attn.ops.random import stateless_normal
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis
from keras_attn.ops.sorting import permute, row_starts, sort_order

# More buckets are pairs of two smaller numbers, or choosing one would cost more than attention.
MOST_SINGLE_BUCKETS = 128

_look_up = functools.partial(ops.take, axis=0)


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

    The result is int32 (B, N, num_rounds, S), in [0, num_buckets) or, in pairs, less than the next
    product of two even numbers. `x` is (B, N, S, H), `num_buckets` an even int or int tensor, and
    `seed` an int, or int32 (2,), which may be a tensor.
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
    """Return two even numbers, the second may be None, of a product of at least `num_buckets`."""
    if isinstance(num_buckets, int):
        if num_buckets <= MOST_SINGLE_BUCKETS:
            return num_buckets, None
        first = 2 * math.ceil(math.sqrt(num_buckets) / 2)
        return first, 2 * math.ceil(num_buckets / first / 2)
    root = ops.cast(ops.ceil(ops.sqrt(ops.cast(num_buckets, "float32")) / 2), "int32")
    first = ops.where(num_buckets > MOST_SINGLE_BUCKETS, 2 * root, num_buckets)
    return first, 2 * ((num_buckets + 2 * first - 1) // (2 * first))


def _furthest(x, count, num_rounds, seed):
    """Return which of `count` directions, axes then opposites, is nearest: (B, N, rounds, S)."""
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


def hash_products(inputs, num_buckets, num_rounds):
    """Return the multiply-adds of `hash_directions` for the keys of the inputs."""
    directions = sum((count or 0) // 2 for count in _factors(num_buckets))
    return math.prod(inputs.key.shape) * num_rounds * directions


def chunk_numbers(inverse, buckets, chunk_length, across_buckets):
    """Return numbers for `meet`, by each position's rank among buckets and its bucket (..., S)."""
    chunks = inverse // chunk_length
    # A later bucket lies in a later chunk or the same one: two more tell them apart.
    return chunks if across_buckets else chunks + 2 * buckets


def sort_by_bucket(inputs, buckets):
    """Return the order of positions by bucket, its inverse, and each position's rank.

    They are int32 (B, N, rounds, S). In packed rows documents are sorted one by one, and ranks are
    those in the document.
    """
    if not inputs.query_segments:
        order, inverse = sort_order(buckets)
        return order, inverse, inverse
    segments = inputs.query_segments[0][:, :, None, :, 0]
    index = ops.arange(size(inputs.key, 2), dtype="int32")
    starts = ops.broadcast_to(ops.where(segments > 0, segments - 1, index), ops.shape(buckets))
    order, inverse = sort_order(buckets, starts)
    return order, inverse, inverse - starts


def meet(i, j):
    """Return True where the chunk number of a query is that of a key or one more."""
    return ops.logical_and(i >= j, i <= j + 1)


def lsh_tiles(inputs, num_rounds, chunk_length, wrap=False):
    """Return the `TileCount`s of `attend_lsh`."""
    length = inputs.query.shape[2]
    block = min(chunk_length, length)
    if wrap:
        inputs = resize(inputs, num_keys=block + length)
    (tiles,) = block_local_tiles(inputs, block, before=1)
    return num_rounds * [tiles._replace(num_distances=None)]


def attend_lsh(inputs, buckets, chunk_length, *, causal, across_buckets=False, wrap=False):
    """Compute attention to other positions of the same chunk and the one before, over all rounds.

    Time O(rounds S (chunk_length + log S)) and memory O(rounds S) per head. `inputs` have as many
    queries as keys, `buckets` are int32 (B, N, rounds, S), and the others are those of
    `keras_attn.patterns.LSH`. Return the output (B, N, S, Hv) and the log weight (B, N, S, 1).
    """
    length = inputs.query.shape[2]
    block = chunk_length if length is None else min(chunk_length, length)
    order, inverse, ranks = sort_by_bucket(inputs, buckets)
    chunks = chunk_numbers(ranks, buckets, chunk_length, across_buckets)
    # `attend_block_local` gets row numbers for positions: buckets and chunks are looked up by them.
    starts = row_starts(inputs.query)
    numbers = range(buckets.shape[2])
    order, inverse = ([x[:, :, r] + starts for r in numbers] for x in (order, inverse))
    chunks, buckets = ([ops.reshape(x[:, :, r], (-1,)) for r in numbers] for x in (chunks, buckets))
    is_shared, has_mask = inputs.key is inputs.query, wrap or inputs.key_mask is not None

    def flat(x):  # (B or 1, N or 1, S) -> (B N S,)
        return ops.reshape(ops.broadcast_to(x, sizes(inputs.key)[:3]), (-1,))

    key_mask = flat(inputs.mask_of_keys()[..., 0]) if has_mask else None
    positions = inputs.mask_fn and flat(positions_by_head(inputs.key_positions))
    segments = [flat(x[..., 0]) for x in inputs.query_segments]
    # In packed rows, a document's chunks begin anywhere in the blocks.
    neighbours = {"before": 2, "after": 1} if segments else {"before": 1}

    def mask_fn(i, j):
        return inputs.mask_fn(_look_up(positions, i), _look_up(positions, j))

    def sort(r):
        query, value = [permute(x, order[r], inverse[r]) for x in (inputs.query, inputs.value)]
        of_queries = tuple(_look_up(x, order[r])[..., None] for x in segments)
        return inputs.fold_in(r).replace(
            query=query,
            key=query if is_shared else permute(inputs.key, order[r], inverse[r]),
            value=value,
            query_positions=order[r],
            key_positions=order[r],
            key_mask=_look_up(key_mask, order[r]) if has_mask else None,
            query_segments=of_queries,
            mask_fn=inputs.mask_fn and mask_fn,
        )

    def allowed(r, i, j):
        met = j < i if causal else j != i
        if segments:
            met = ops.logical_and(met, meet(_look_up(chunks[r], i), _look_up(chunks[r], j)))
        elif not across_buckets:
            met = ops.logical_and(met, _look_up(buckets[r], i) == _look_up(buckets[r], j))
        for earlier in () if wrap else chunks[:r]:
            met_before = meet(_look_up(earlier, i), _look_up(earlier, j))
            met = ops.logical_and(met, ops.logical_not(met_before))
        return met

    rounds = [sort(r) for r in numbers]
    if wrap:
        rounds = [_after(rounds[r - 1], rounds[r], block) for r in numbers]
    parts = []
    for r in numbers:
        pairs = functools.partial(allowed, r)
        found = attend_block_local(rounds[r], pairs, block, **neighbours, log_weight=True)
        parts.append([permute(x, inverse[r], order[r]) for x in found])
    return merge_by_logsumexp(parts)


def _after(previous, inputs, block):
    """Return inputs with the last chunk of the previous round's keys before their own."""
    length = size(inputs.query, 2)
    start = (ceil_div(length, block) - 1) * block

    def joined(name):
        last = slice_axis(getattr(previous, name), start, length - start, axis=2)
        last = pad(last, 0, block - (length - start))
        return ops.concatenate([last, getattr(inputs, name)], axis=2)

    names = ("key", "value", "key_positions", "key_mask")
    return inputs.replace(**{name: joined(name) for name in names})
