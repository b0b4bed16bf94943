"""The softmax over keys, the float32 island of every attention."""

from keras import ops

from keras_attn.ops.products import weights_values

# Absorbs any finite logit in float32, so that a forbidden key weighs exactly zero.
FORBIDDEN = -1e30


def attend(logits, value, mask=None, drop=None):
    """softmax(logits) @ value over the allowed keys.

    Args:
        logits: (B, N, T, S), any float dtype; the softmax is taken in float32.
        value: (B, N, S, Hv).
        mask: boolean, broadcastable to (B, N, T, S), True = may attend; None allows all.
        drop: function applied to the weights before they meet the values (dropout).

    Returns:
        The output (B, N, T, Hv) in the dtype of `value` and the weights (B, N, T, S) in float32.
        A query without an allowed key gets zeros in both, and zero gradient.
    """
    logits = ops.cast(logits, "float32")
    if mask is not None:
        # Not added: TensorFlow joins a product and the sum after it into one kernel, which takes
        # fifty times longer where rows share a mask.
        logits = logits - ops.where(mask, 0.0, -FORBIDDEN)
    # Keras warns of a softmax over a single key, which is ordinary here.
    weights = ops.ones_like(logits) if logits.shape[-1] == 1 else ops.softmax(logits, axis=-1)
    kept = weights if drop is None else drop(weights)
    output = weights_values(ops.cast(kept, value.dtype), value)  # (B, N, T, Hv)
    if mask is not None:
        any_key = ops.any(mask, axis=-1, keepdims=True)
        output = output * ops.cast(any_key, output.dtype)
        weights = weights * ops.cast(any_key, weights.dtype)
    return output, weights
