"""Which tokens count, how much, and what each one's loss is."""

from keras import ops

from keras_attn.ops.crossentropy import crossentropy


def token_weights(labels, ignore_id, sample_weight=None):
    """float32 weights (B, T): 0 where the label is `ignore_id`, else 1 or the sample's weight.

    Args:
        labels: integer tensor (B, T).
        ignore_id: int.
        sample_weight: optional, (B,), (B, 1) or (B, T).
    """
    weights = ops.cast(ops.not_equal(labels, ignore_id), "float32")
    return weights if sample_weight is None else weights * element_weights(labels, sample_weight)


def element_weights(elements, sample_weight=None):
    """float32 weights of the shape of `elements` (B, ...): 1, or the sample's weight.

    Args:
        elements: tensor.
        sample_weight: optional, with the first axes of `elements`, or with 1 in place of an axis.
    """
    weights = ops.ones_like(elements, dtype="float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = ops.expand_dims(sample_weight, -1)  # (B,) -> (B, 1)
    return weights * sample_weight


def known_labels(labels, ignore_id):
    """`labels` with 0 for `ignore_id`, which may lie outside the vocabulary, such as -100."""
    return ops.where(ops.equal(labels, ignore_id), ops.zeros_like(labels), labels)


def token_losses(labels, predictions, ignore_id, smoothing=0.0):
    """The negative log-likelihood of each label, float32 (B, T).

    Args:
        labels: integer tensor (B, T).
        predictions: logits (B, T, V); or (B, T), the losses themselves, from a layer that does not
            make all logits.
        ignore_id: int. Where it is the label, the result is finite and means nothing.
        smoothing: float in [0, 1). What is made of logits only.
    """
    if not _fit(labels.shape, predictions.shape):
        return crossentropy(known_labels(labels, ignore_id), predictions, smoothing)
    if len(labels.shape) > 2:
        raise ValueError(
            "`y_true` must be (B, T), the id of each token; one-hot labels become ids by "
            f"`argmax(y_true, axis=-1)`. Received: y_true of shape {tuple(labels.shape)}, "
            f"y_pred of shape {tuple(predictions.shape)}."
        )
    if smoothing:
        raise ValueError(
            "`smoothing` needs the logits of all words; of a layer's own losses of shape (B, T) "
            f"there is only the mean, with `smoothing=0.0`. Received: smoothing={smoothing}"
        )
    return ops.cast(predictions, "float32")


def _fit(shape, other):
    """Whether two shapes are the same, as far as they are known."""
    return len(shape) == len(other) and all(
        a == b or None in (a, b) for a, b in zip(shape, other, strict=True)
    )
