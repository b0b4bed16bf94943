"""Attention sinks: a logit of each head that takes a part of the weight from the keys."""

from keras import ops

from keras_attn.attention.softmax import (
    FORBIDDEN,
    attend_logits_with_weights,
    dense_arguments,
)


def attend_dense_with_sinks(inputs, pattern):
    """Compute `attend_dense` with a logit of each head beside those of the keys.

        weight_j = exp(z_j) / (exp(s) + sum over keys exp(z)),   s = `inputs.sinks`

    Return the output (B, N, T, Hv) and the scores (B, N, T, S), whose rows sum to less than 1.
    """
    arguments = dense_arguments(inputs, pattern)
    output, log_weight, scores = attend_logits_with_weights(*arguments)
    share = share_of_keys(log_weight, inputs.sinks)
    return output * ops.cast(share, output.dtype), scores * share


def attend_blockwise_with_sinks(inputs, pattern):
    """Compute the same by the plan of a pattern. Return the output, and None for the scores."""
    output, log_weight = pattern.attend_blockwise(inputs, log_weight=True)
    return output * ops.cast(share_of_keys(log_weight, inputs.sinks), output.dtype), None


def share_of_keys(log_weight, sinks):
    """Return the weight (B, N, T, 1) of all keys together beside sinks (N,).

    It is the share of the keys when `merge_by_logsumexp` merges their output with that of a sink,
    which is zero. A sink of -inf takes nothing. A query without keys has the weight 0.
    """
    share = ops.sigmoid(log_weight - ops.cast(sinks, log_weight.dtype)[:, None, None])
    return ops.where(log_weight > FORBIDDEN, share, 0.0)
