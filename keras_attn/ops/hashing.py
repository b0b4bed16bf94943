"""Hashing vectors so that those in similar directions are likely to get the same number."""

import math

from keras import ops

from keras_attn.ops.cutting import size
from keras_attn.ops.normals import normals

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
    axes = normals((num_heads, width, num_rounds * half), seed)
    along = ops.matmul(x, axes)  # (B, N, S, rounds * half)
    along = ops.reshape(along, (size(x, 0), num_heads, size(x, 2), num_rounds, half))
    # Four times faster than argmax([along, -along]).
    furthest, axis = ops.top_k(ops.abs(along), 1)
    opposite = ops.max(along, axis=-1, keepdims=True) < furthest
    directions = ops.cast(axis, "int32") + half * ops.cast(opposite, "int32")
    return ops.transpose(directions[..., 0], (0, 1, 3, 2))
