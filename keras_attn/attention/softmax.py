"""Products, softmax and merging of attention, and dense attention made of them.

With one query, as in decoding, the products are sums over a cache whose length differs at every
step. TensorFlow's batched product sets up a kernel for each new length, which takes longer than the
product; its einsum has nothing to set up, and under XLA it spares a transposed copy of the keys.
"""

from keras import backend, ops

from keras_attn.backend.operations import softmax_with_logsumexp
from keras_attn.ops.dtypes import at_least_float32

# Absorbs any finite logit in float32, so that a forbidden key weighs exactly zero.
FORBIDDEN = -1e30


def attend_dense(inputs, pattern):
    """Compute attention from the whole matrix of scores, in O(T S H) time and O(T S) memory.

    Args:
        inputs: `AttentionInputs`.
        pattern: of the pattern axis.

    Returns:
        The output (B, N, T, Hv) and the scores (B, N, T, S), at least float32.
    """
    mask, bias = pattern.dense_mask_and_bias(inputs)
    mask = inputs.dense_mask(mask)
    logits = inputs.score(
        inputs.query,
        inputs.key,
        query_positions=inputs.query_positions,
        key_positions=inputs.key_positions,
    )
    if bias is not None:
        logits = at_least_float32(logits)
        logits = logits + ops.cast(bias, logits.dtype)
    drop = None
    if inputs.dropout_fn is not None:
        drop = lambda weights: inputs.dropout_fn(weights, inputs.seed)  # noqa: E731
    return attend_logits(logits, inputs.value, mask, drop)


def query_keys(query, key):
    """Compute dot products (B, N, T, S) of query (B, N, T, H) and key (B, N, S, H).

    They are float32 for float16, whose dot products may be too large for float16.
    """
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if query.shape[2] == 1:
        logits = ops.einsum("bnh,bnsh->bns", ops.squeeze(query, 2), key)
        return ops.expand_dims(logits, 2)
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def weights_values(weights, value):
    """Compute sums (B, N, T, H) of value (B, N, S, H) with weights (B, N, T, S)."""
    if weights.shape[2] == 1:
        output = ops.einsum("bns,bnsh->bnh", ops.squeeze(weights, 2), value)
        return ops.expand_dims(output, 2)
    return ops.matmul(weights, value)


def attend_logits(logits, value, mask=None, drop=None, never_empty=False):
    """Compute softmax(logits) @ value over the allowed keys.

    Args:
        logits: (..., T, S), any float dtype; the softmax is taken in at least float32.
        value: (..., S, Hv).
        mask: boolean, broadcastable to (..., T, S), True = may attend; None allows all.
        drop: function of the weights that returns them after dropout; None without.
        never_empty: bool. True if each query is known to have an allowed key.

    Returns:
        The output (..., T, Hv) in the dtype of `value` and the weights (..., T, S), at least
        float32. A query without an allowed key gets zeros in both, and zero gradient.
    """
    logits = _forbid(logits, mask)
    # Keras warns of a softmax over a single key, which is ordinary here.
    weights = ops.ones_like(logits) if logits.shape[-1] == 1 else ops.softmax(logits, axis=-1)
    output = _weigh(weights, value, drop)
    if mask is not None and not never_empty:
        any_key = ops.any(mask, axis=-1, keepdims=True)
        output = output * ops.cast(any_key, output.dtype)
        weights = weights * ops.cast(any_key, weights.dtype)
    return output, weights


def attend_logits_with_logsumexp(logits, value, mask=None, drop=None, never_empty=False):
    """Compute `attend_logits` over a part of the keys.

    Returns:
        The output and its log weight (..., T, 1), for `merge_by_logsumexp`.
    """
    logits = _forbid(logits, mask)
    weights, log_weight = softmax_with_logsumexp(logits)
    output = _weigh(weights, value, drop)
    if mask is not None and not never_empty:
        any_key = ops.any(mask, axis=-1, keepdims=True)
        output = output * ops.cast(any_key, output.dtype)
        log_weight = ops.where(any_key, log_weight, FORBIDDEN)
    return output, log_weight


def _forbid(logits, mask):
    logits = at_least_float32(logits)
    if mask is None:
        return logits
    # Not added: TensorFlow joins a product and the sum after it into one kernel, which takes
    # fifty times longer where rows share a mask.
    return logits - ops.cast(ops.where(mask, 0.0, -FORBIDDEN), logits.dtype)


def _weigh(weights, value, drop):
    kept = weights if drop is None else drop(weights)
    return weights_values(ops.cast(kept, value.dtype), value)  # (..., T, Hv)


def merge_by_logsumexp(parts):
    """Merge attention over disjoint sets of keys into attention over their union.

        o = sum_r exp(z_r - z) o_r,   z = log sum_r exp(z_r)

    Args:
        parts: list of (output (..., T, Hv), log weight (..., T, 1)): the result of a softmax over
            each set, and the log of the sum of its exponentials.

    Returns:
        The same of the union. A part without keys, whose log weight is `FORBIDDEN`, has no weight;
        where no part has keys, the output is zero.
    """
    if len(parts) == 1:
        return parts[0]
    logs = [log_weight for _, log_weight in parts]
    top = logs[0]
    for log_weight in logs[1:]:
        top = ops.maximum(top, log_weight)
    top = ops.stop_gradient(top)
    weights = [ops.exp(log_weight - top) for log_weight in logs]
    total = sum(weights[1:], weights[0])
    output = sum(
        ops.cast(weight / total, output.dtype) * output
        for weight, (output, _) in zip(weights, parts, strict=True)
    )
    return output, top + ops.log(total)
