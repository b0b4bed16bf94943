"""The cross-entropy of every token, shared by losses, metrics and layers that have a loss."""

from keras_attn.backend import operations


def crossentropy(labels, logits, label_smoothing=0.0):
    """Compute -sum_v q(v) log softmax(logits)(v) with q = (1 - s) one_hot(label) + s / V.

    With lse = logsumexp(logits) this is lse - (1 - s) logits[label] - s mean(logits), so that
    neither q nor log softmax is ever stored.

    Args:
        labels: integer tensor (...), each in [0, V).
        logits: float tensor (..., V); computed in float32 whatever its dtype.
        label_smoothing: float in [0, 1), s.

    Returns:
        float32 tensor (...).
    """
    pairs = zip(labels.shape, logits.shape)
    if len(logits.shape) != len(labels.shape) + 1 or any(
        label != logit and None not in (label, logit) for label, logit in pairs
    ):
        raise ValueError(
            "`logits` must have the axes of `labels` and then the vocabulary. "
            f"Received: labels of shape {tuple(labels.shape)}, "
            f"logits of shape {tuple(logits.shape)}."
        )
    return operations.crossentropy(labels, logits, label_smoothing)
