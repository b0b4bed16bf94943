"""The two products of attention.

With one query, as in decoding, they are sums over a cache whose length differs at every step.
TensorFlow's batched product sets up a kernel for each new length, which takes longer than the
product; its einsum has nothing to set up, and under XLA it spares a transposed copy of the keys.
"""

from keras import backend, ops

from keras_attn.backend.operations import softmax_with_logsumexp


def query_keys(query, key):
    """query (B, N, T, H), key (B, N, S, H) -> dot products (B, N, T, S), float32 from float16.

    A dot product of float16 may be too large for float16.
    """
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if query.shape[2] == 1:
        logits = ops.einsum("bnh,bnsh->bns", ops.squeeze(query, 2), key)
        return ops.expand_dims(logits, 2)
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def weights_values(weights, value):
    """weights (B, N, T, S), value (B, N, S, H) -> weighted sums (B, N, T, H)."""
    if weights.shape[2] == 1:
        output = ops.einsum("bns,bnsh->bnh", ops.squeeze(weights, 2), value)
        return ops.expand_dims(output, 2)
    return ops.matmul(weights, value)


# Absorbs any finite logit in float32, so that a forbidden key weighs exactly zero.
FORBIDDEN = -1e30


def attend(logits, value, mask=None, drop=None, never_empty=False):
    """softmax(logits) @ value over the allowed keys.

    Args:
        logits: (..., T, S), any float dtype; the softmax is taken in float32.
        value: (..., S, Hv).
        mask: boolean, broadcastable to (..., T, S), True = may attend; None allows all.
        drop: function applied to the weights before they meet the values (dropout).
        never_empty: bool. Whether it is known that each query has an allowed key.

    Returns:
        The output (..., T, Hv) in the dtype of `value` and the weights (..., T, S) in float32.
        A query without an allowed key gets zeros in both, and zero gradient.
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


def attend_with_logsumexp(logits, value, mask=None, drop=None, never_empty=False):
    """`attend` over a part of the keys: the output and, for `merge`, its log weight (..., T, 1)."""
    logits = _forbid(logits, mask)
    weights, log_weight = softmax_with_logsumexp(logits)
    output = _weigh(weights, value, drop)
    if mask is not None and not never_empty:
        any_key = ops.any(mask, axis=-1, keepdims=True)
        output = output * ops.cast(any_key, output.dtype)
        log_weight = ops.where(any_key, log_weight, FORBIDDEN)
    return output, log_weight


def _forbid(logits, mask):
    logits = ops.cast(logits, "float32")
    if mask is None:
        return logits
    # Not added: TensorFlow joins a product and the sum after it into one kernel, which takes
    # fifty times longer where rows share a mask.
    return logits - ops.where(mask, 0.0, -FORBIDDEN)


def _weigh(weights, value, drop):
    kept = weights if drop is None else drop(weights)
    return weights_values(ops.cast(kept, value.dtype), value)  # (..., T, Hv)


def merge(parts):
    """The attention over the union of disjoint sets of keys.

        o = sum_r exp(z_r - z) o_r,   z = log sum_r exp(z_r)

    Args:
        parts: list of (output (..., T, Hv), log weight (..., T, 1) float32): what a softmax over
            each set gave, and the log of the sum of its exponentials.

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
