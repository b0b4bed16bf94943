"""Cross-entropy and weights of tokens, for losses, metrics and layers that have a loss."""

from keras import ops

from keras_attn.backend import operations
from keras_attn.ops.dtypes import at_least_float32


def crossentropy(labels, logits, label_smoothing=0.0):
    """Compute -sum_v q(v) log softmax(logits)(v) with q = (1 - s) one_hot(label) + s / V.

    With lse = logsumexp(logits) this is lse - (1 - s) logits[label] - s mean(logits), so that
    neither q nor log softmax is ever stored.

    Args:
        labels: integer tensor (...), each in [0, V).
        logits: float tensor (..., V).
        label_smoothing: float in [0, 1), s.

    Returns:
        Tensor (...), computed in float64 if the logits are float64, else in float32.
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
    return operations.crossentropy(labels, at_least_float32(logits), label_smoothing)


def token_weights(labels, ignore_class, sample_weight=None, dtype="float32"):
    """Return weights (B, T): 0 where the label is `ignore_class`, else the sample's weight.

    Args:
        labels: integer tensor (B, T).
        ignore_class: int; None counts all tokens.
        sample_weight: optional, (B,), (B, 1) or (B, T); 1 by default.
    """
    if ignore_class is None:
        return element_weights(labels, sample_weight, dtype)
    weights = ops.cast(ops.not_equal(labels, ignore_class), dtype)
    if sample_weight is None:
        return weights
    return weights * element_weights(labels, sample_weight, dtype)


def element_weights(elements, sample_weight=None, dtype="float32"):
    """Return weights of the shape of `elements` (B, ...): 1, or the sample's weight.

    Args:
        elements: tensor.
        sample_weight: optional, with the first axes of `elements`, or with 1 in place of an axis.
    """
    weights = ops.ones_like(elements, dtype=dtype)
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, dtype)
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = ops.expand_dims(sample_weight, -1)  # (B,) -> (B, 1)
    return weights * sample_weight


def known_labels(labels, ignore_class):
    """Replace `ignore_class`, which may lie outside the vocabulary (such as -100), by 0."""
    if ignore_class is None:
        return labels
    return ops.where(ops.equal(labels, ignore_class), ops.zeros_like(labels), labels)


def token_losses(labels, predictions, ignore_class, label_smoothing=0.0):
    """Return the negative log-likelihood of each label (B, T), float32 or, of float64, float64.

    Args:
        labels: integer tensor (B, T).
        predictions: logits (B, T, V); or (B, T), the losses themselves, from a layer that does not
            make all logits.
        ignore_class: int, or None. Where it is the label, the result is finite and means nothing.
        label_smoothing: float in [0, 1). Needs logits.
    """
    if not _same_shape(labels.shape, predictions.shape):
        return crossentropy(known_labels(labels, ignore_class), predictions, label_smoothing)
    if len(labels.shape) > 2:
        raise ValueError(
            "`y_true` must be (B, T), the id of each token; one-hot labels become ids by "
            f"`argmax(y_true, axis=-1)`. Received: y_true of shape {tuple(labels.shape)}, "
            f"y_pred of shape {tuple(predictions.shape)}."
        )
    if label_smoothing:
        raise ValueError(
            "`label_smoothing` needs the logits of all words; losses of shape (B, T), which a "
            "layer has computed itself, need `label_smoothing=0.0`. "
            f"Received: label_smoothing={label_smoothing}"
        )
    return at_least_float32(predictions)


def _same_shape(shape, other):
    """Return True if two shapes agree in all axes that both know."""
    return len(shape) == len(other) and all(
        a == b or None in (a, b) for a, b in zip(shape, other, strict=True)
    )
