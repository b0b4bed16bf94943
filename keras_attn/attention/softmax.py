"""Dense attention: products, softmax, sinks, and the merging of parts.

With one query, as in decoding, the products are sums over a cache whose length differs at every
step. TensorFlow's batched product sets up a kernel for each new length, which takes longer than the
product; its einsum has nothing to set up, and under XLA it spares a transposed copy of the keys.
"""

import functools

from keras import backend, ops

from keras_attn.backend.loop_invariants import loop_invariant, loop_scope
from keras_attn.backend.operations import einsum, multiply_transposed, softmax_with_logsumexp
from keras_attn.ops.shapes import join_heads

# Absorbs any finite logit in float32, so that a forbidden key weighs exactly zero.
FORBIDDEN = -1e30

# Vectors of at most this squared length have no direction.
SHORTEST = 1e-30


def attend_dense(inputs, pattern):
    """Compute attention from the whole matrix of scores, in O(T S H) time and O(T S) memory.

    Return the output (B, N, T, Hv) and the scores (B, N, T, S), at least float32.
    """
    return attend_logits(*dense_arguments(inputs, pattern))


def attend_dense_with_sinks(inputs, pattern, sinks):
    """Compute `attend_dense` with a logit of each head beside those of the keys.

        weight_j = exp(z_j) / (exp(s) + sum over keys exp(z)),   s = sinks (N,)

    Return the output (B, N, T, Hv) and the scores (B, N, T, S), whose rows sum to less than 1.
    """
    arguments = dense_arguments(inputs, pattern)
    output, log_weight, scores = attend_logits_with_weights(*arguments)
    share = share_of_keys(log_weight, sinks)
    return output * ops.cast(share, output.dtype), scores * share


def share_of_keys(log_weight, sinks):
    """Return the weight (B, N, T, 1) of all keys together beside sinks (N,).

    It is the share of the keys when `merge_by_logsumexp` merges their output with that of a sink,
    which is zero. A sink of -inf takes nothing. A query without keys has the weight 0.
    """
    share = ops.sigmoid(log_weight - ops.expand_dims(ops.cast(sinks, log_weight.dtype), (1, 2)))
    return ops.where(log_weight > FORBIDDEN, share, 0.0)


def dense_arguments(inputs, pattern):
    """Return the arguments of `attend_logits` for the whole matrix of logits."""
    i, j = inputs.query_positions, inputs.key_positions

    def mask_and_bias():
        mask, bias = None, None
        if pattern.simple_rule != "full":
            mask, bias = pattern.dense_mask_and_bias(inputs)
        return inputs.dense_mask(mask), bias

    if pattern.simple_rule is None or loop_scope.values is None:
        mask, bias = mask_and_bias()
    else:  # layers of a step that get the same objects share one mask
        owners = i, j, inputs.key_mask, inputs.attention_mask, inputs.documents
        mask, bias = loop_invariant(owners, ("mask", pattern.simple_rule), mask_and_bias)
    logits = inputs.score(inputs.query, inputs.key, query_positions=i, key_positions=j)
    drop = inputs.dropout_fn and inputs.dropout(inputs.seed)
    return add_bias(logits, bias), inputs.value, mask, drop


def add_bias(logits, bias):
    """Return the sum in at least float32; the logits themselves if `bias` is None."""
    if bias is None:
        return logits
    logits = at_least_float32(logits)
    return logits + ops.cast(bias, logits.dtype)


def at_least_float32(x):
    """Return a float tensor as float64 if it is that, else as float32."""
    return x if backend.standardize_dtype(x.dtype) == "float64" else ops.cast(x, "float32")


def directions(x):
    """Divide vectors (..., H) by their lengths, which are at least float32.

    The direction of a vector of zeros is zeros, without a gradient.
    """
    exact = at_least_float32(x)
    squares = ops.sum(ops.square(exact), axis=-1, keepdims=True)
    some = squares > SHORTEST
    inverse = ops.where(some, ops.rsqrt(ops.where(some, squares, 1.0)), 0.0)
    return ops.cast(exact * inverse, x.dtype)


def query_keys(query, key):
    """Compute dot products (B, N, T, S) of query (B, N, T, H) and key (B, N, S, H).

    They are float32 for float16, whose dot products may be too large for float16.
    """
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if query.shape[2] == 1:
        return _sum_of_one_query("bth,bsh->bts", query, key)
    return multiply_transposed(query, key)


def weights_values(weights, value):
    """Compute sums (B, N, T, H) of value (B, N, S, H) with weights (B, N, T, S)."""
    if weights.shape[2] == 1:
        return _sum_of_one_query("bts,bsh->bth", weights, value)
    return ops.matmul(weights, value)


def _sum_of_one_query(subscripts, x, y):
    """Return an Einstein sum over axes (B * N, ...) of tensors (B, N, 1, ...) and (B, N, S, H)."""
    if loop_scope.values is None or None in (*x.shape[1:], *y.shape[1:]):
        return einsum(subscripts.replace("b", "bn"), x, y)
    # The loop of a decoder holds caches of these axes. For a product of other axes, XLA would keep
    # a second cache.
    z = einsum(subscripts, join_heads(x), join_heads(y))
    return ops.reshape(z, (-1, x.shape[1], *z.shape[1:]))


def attend_logits(logits, value, mask=None, drop=None, never_empty=False):
    """Compute softmax(logits) @ value over the allowed keys.

    Return the output (..., T, Hv) in the dtype of `value` and the weights (..., T, S), at least
    float32. A query without an allowed key gets zeros in both, and zero gradient.

    Args:
        logits: (..., T, S), any float dtype; the softmax is taken in at least float32.
        value: (..., S, Hv).
        mask: boolean, broadcastable to (..., T, S), True = may attend; None allows all.
        drop: function of the weights that returns them after dropout; None without.
        never_empty: bool. True if each query is known to have an allowed key.
    """
    logits = _forbid(logits, mask)
    # Keras warns of a softmax over a single key, which is ordinary here.
    weights = ops.ones_like(logits) if logits.shape[-1] == 1 else ops.softmax(logits, axis=-1)
    output, any_key = _weigh(weights, value, mask, drop, never_empty)
    return output, weights if any_key is None else weights * _factor(any_key, weights.dtype)


def attend_logits_with_logsumexp(logits, value, mask=None, drop=None, never_empty=False):
    """Compute `attend_logits` over a part of the keys, for `merge_by_logsumexp`.

    Return the output and its log weight (..., T, 1).
    """
    return attend_logits_with_weights(logits, value, mask, drop, never_empty)[:2]


def attend_logits_with_weights(logits, value, mask=None, drop=None, never_empty=False):
    """Compute `attend_logits_with_logsumexp`; also return the weights, of any query with a key."""
    weights, log_weight = softmax_with_logsumexp(_forbid(logits, mask))
    output, any_key = _weigh(weights, value, mask, drop, never_empty)
    if any_key is not None:
        log_weight = ops.where(any_key, log_weight, FORBIDDEN)
    return output, log_weight, weights


def _forbid(logits, mask):
    logits = at_least_float32(logits)
    if mask is None:
        return logits
    # Not added: TensorFlow joins a product and the sum after it into one kernel, which takes
    # fifty times longer where rows share a mask.
    dtype = logits.dtype
    return logits - _once(
        mask, ("penalty", str(dtype)), lambda: ops.cast(ops.where(mask, 0.0, -FORBIDDEN), dtype)
    )


def _weigh(weights, value, mask, drop, never_empty):
    """Return the output (..., T, Hv), and True where a query has a key (..., T, 1) or None."""
    kept = weights if drop is None else drop(weights)
    output = weights_values(ops.cast(kept, value.dtype), value)
    if mask is None or never_empty:
        return output, None
    any_key = _once(mask, "any", lambda: ops.any(mask, axis=-1, keepdims=True))
    return output * _factor(any_key, output.dtype), any_key


def _factor(any_key, dtype):
    """Return 1 where a query has a key, else 0."""
    return _once(any_key, str(dtype), lambda: ops.cast(any_key, dtype))


def _once(owner, name, compute):
    """Return `compute()`; while the loop of a decoder is open, its first result."""
    return compute() if loop_scope.values is None else loop_invariant(owner, name, compute)


def merge_by_logsumexp(parts):
    """Merge attention over disjoint sets of keys into attention over their union.

        o = sum_r exp(z_r - z) o_r,   z = log sum_r exp(z_r)

    Each part, and the result, is a pair: the output (..., T, Hv) of a softmax over a set, and the
    log (..., T, 1) of the sum of its exponentials. A part without keys, whose log weight is
    `FORBIDDEN`, has no weight; where no part has keys, the output is zero.
    """
    if len(parts) == 1:
        return parts[0]
    logs = [log_weight for _, log_weight in parts]
    top = ops.stop_gradient(functools.reduce(ops.maximum, logs))
    weights = [ops.exp(log_weight - top) for log_weight in logs]
    total = sum(weights[1:], weights[0])
    output = sum(
        ops.cast(weight / total, output.dtype) * output
        for weight, (output, _) in zip(weights, parts, strict=True)
    )
    return output, top + ops.log(total)
