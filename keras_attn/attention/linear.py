"""Attention whose weights are products of features, in linear time, and its cache of sums."""

import numpy as np
from keras import ops

from keras_attn.attention.softmax import at_least_float32
from keras_attn.ops.shapes import ceil_div, greater, pad, size, sizes, slice_axis


def can_attend_linear(inputs, pattern, can_use_plan):
    """Return True if `attend_linear` gives the same as the matrix of scores without sinks.

    `can_use_plan`: True if positions follow each other and the call has no mask of pairs.
    """
    is_simple = can_use_plan and pattern.simple_rule is not None
    return is_simple and inputs.dropout_fn is None and inputs.documents is None


def attend_linear(inputs, pattern, sums=None):
    """Compute attention over all keys or, for a causal pattern, over those up to each query.

        o_i = phi(q_i) S_i / (phi(q_i) . z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j)

    A causal pattern cuts the sequence into chunks of C: queries attend to the keys of their own
    chunk one by one, and to all earlier chunks by their sums. Time O((T + S) (C + M) Hv) and memory
    O((T + S) (C + M + M Hv / C)) per head for M features. `sums` are those of the keys before these
    in a cache. Return the output (B, N, T, Hv), and None for the scores.
    """
    if inputs.dropout_fn is not None:
        raise ValueError(
            "A cache of sums has no weights to drop. Call the layer with `training=False`, or with "
            "a cache of `KVCache(max_length, whole=True)`. Received: training=True."
        )
    query = inputs.score.query_features(inputs.query)
    key, value = _features_and_values(inputs)
    if pattern.simple_rule == "causal":
        totals = _causal_totals(query, key, value, sums, inputs.tile_sizes.linear_chunk)
    else:
        products = _outer_products(key, value)
        totals = ops.matmul(query, products if sums is None else sums + products)
    width = totals.shape[-1] - 1
    weight = slice_axis(totals, width, 1, axis=3)
    has_key = weight > 0
    # JAX's gradient of a quotient has the square of the divisor, which must be near 1.
    totals = totals / ops.stop_gradient(ops.where(has_key, weight, 1.0))
    weight = ops.where(has_key, slice_axis(totals, width, 1, axis=3), 1.0)
    output = slice_axis(totals, 0, width, axis=3) / weight
    return ops.cast(output, inputs.value.dtype), None


def linear_products(inputs, pattern):
    """Return the multiply-adds of `attend_linear` without a cache."""
    batch, num_heads, length, head_dim = inputs.query.shape
    num_keys, width = inputs.key.shape[2], inputs.value.shape[3] + 1
    score, heads = inputs.score, batch * num_heads
    features = score.count_features(head_dim)
    products = score.products_of_features(length + num_keys, head_dim)
    if pattern.simple_rule != "causal":
        return heads * (products + (length + num_keys) * features * width)
    longer = max(length, num_keys)
    chunk = min(inputs.tile_sizes.linear_chunk, max(longer, 1))
    count = ceil_div(longer, chunk)
    products += count * chunk * chunk * (features + width)
    if count > 1:
        products += 2 * count * chunk * features * width
    return heads * products


def _features_and_values(inputs):
    """Return features (B, N, S, M), zero for padding, and values with a one (B, N, S, Hv + 1)."""
    key = inputs.score.key_features(inputs.key)
    if inputs.key_mask is not None:
        key = key * ops.cast(ops.expand_dims(inputs.key_mask, -1), key.dtype)
    value = ops.cast(at_least_float32(inputs.value), key.dtype)
    return key, ops.pad(value, [(0, 0), (0, 0), (0, 0), (0, 1)], constant_values=1.0)


def _outer_products(key, value):
    """Return the sum over keys (..., M, Hv + 1) of phi(k) [v 1]^T."""
    return ops.matmul(ops.swapaxes(key, -1, -2), value)


def _causal_totals(query, key, value, sums, chunk):
    """Return the sums (B, N, T, Hv + 1) of (phi(q_i) . phi(k_j)) [v_j 1] over j up to i."""
    length, num_keys = size(query, 2), size(key, 2)
    longer = greater(length, num_keys)  # both end at the last position
    chunk = min(chunk, max(longer, 1)) if isinstance(longer, int) else chunk
    count = ceil_div(longer, chunk)

    def cut(x):  # (B, N, T or S, W) -> (B, N, count, C, W)
        x = pad(x, longer - size(x, 2), count * chunk - longer)
        return ops.reshape(x, (*sizes(x)[:2], count, chunk, x.shape[3]))

    query, key, value = cut(query), cut(key), cut(value)
    products = ops.matmul(query, ops.swapaxes(key, -1, -2))  # (B, N, count, C, C)
    totals = ops.matmul(ops.multiply(products, np.tri(chunk, dtype="float32")), value)
    if sums is not None or not isinstance(count, int) or count > 1:
        chunks = _outer_products(key, value)  # (B, N, count, M, Hv + 1)
        first = ops.zeros_like(chunks[:, :, :1]) if sums is None else ops.expand_dims(sums, 2)
        # Shift before the cumulative sum: its rounding must not depend on later keys.
        earlier = ops.concatenate([first, slice_axis(chunks, 0, count - 1, axis=2)], axis=2)
        totals = totals + ops.matmul(query, ops.cumsum(earlier, axis=2))
    totals = ops.reshape(totals, (*sizes(totals)[:2], count * chunk, totals.shape[4]))
    return slice_axis(totals, longer - length, length, axis=2)


def initial_sums(score, batch_size, num_heads, key_dim, value_dim, dtype):
    """Return a cache without keys: sums (B, N, M, Hv + 1), at least float32, and an index."""
    shape = (batch_size, num_heads, score.count_features(key_dim), value_dim + 1)
    dtype = "float64" if dtype == "float64" else "float32"
    return {"sums": ops.zeros(shape, dtype), "index": ops.convert_to_tensor(0, "int32")}


def extend_sums(cache, inputs):
    """Return a cache of sums, whose index is advanced, with the keys of the inputs added."""
    key, value = _features_and_values(inputs)
    return {**cache, "sums": cache["sums"] + _outer_products(key, value)}
