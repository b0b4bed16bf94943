"""Which tokens count, and how much."""

from keras import ops


def token_weights(labels, ignore_id, sample_weight=None):
    """float32 weights (B, T): 0 where the label is `ignore_id`, else 1 or the sample's weight.

    Args:
        labels: integer tensor (B, T).
        ignore_id: int.
        sample_weight: optional, (B,), (B, 1) or (B, T).
    """
    weights = ops.cast(ops.not_equal(labels, ignore_id), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = ops.expand_dims(sample_weight, -1)  # (B,) -> (B, 1)
    return weights * sample_weight


def known_labels(labels, ignore_id):
    """`labels` with 0 for `ignore_id`, which may lie outside the vocabulary, such as -100."""
    return ops.where(ops.equal(labels, ignore_id), ops.zeros_like(labels), labels)
