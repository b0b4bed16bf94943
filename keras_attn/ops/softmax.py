"""The softmax over keys, the float32 island of every attention."""

from keras import backend, ops

from keras_attn.ops.products import weights_values

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


def attend_part(logits, value, mask=None, drop=None, never_empty=False):
    """`attend` over a part of the keys: the output and, for `merge`, its log weight (..., T, 1)."""
    logits = _forbid(logits, mask)
    weights, log_weight = _softmax_and_log_sum(logits)
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


def _softmax_and_log_sum(logits):
    if backend.backend() == "tensorflow":
        from keras_attn.ops.tensorflow_softmax import softmax_and_log_sum

        return softmax_and_log_sum(logits)
    weights = ops.ones_like(logits) if logits.shape[-1] == 1 else ops.softmax(logits, axis=-1)
    return weights, ops.logsumexp(logits, axis=-1, keepdims=True)
