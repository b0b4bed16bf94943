"""How often a whole sequence is right."""

import keras
from keras import ops

from keras_attn.registry import register


@register
class SequenceAccuracy(keras.metrics.Mean):
    """Share of the sequences in which every real token's label has the greatest logit.

        #{b: y_bi = ignore_id or y_bi = argmax_v z_bi(v) for all i} / B

    Of a model that predicts y_i from the right y_1 .. y_{i-1} it is also the share that greedy
    decoding writes right: as long as that is right it reads the same. A row of `ignore_id` alone
    does not count. One pass over the logits, O(B T V).

    Args:
        ignore_id: int. Tokens with this label may be anything.
        name: optional name.
        dtype: of the sums; optional.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits.
        sample_weight: optional, (B,): sequences count this many times.

    Example:

    >>> import numpy as np
    >>> from keras_attn.metrics import SequenceAccuracy
    >>> metric = SequenceAccuracy()
    >>> metric.update_state(np.array([[1, 2, 0], [1, 1, 0]]), np.eye(3)[[[1, 1, 0], [1, 1, 2]]])
    >>> float(metric.result())
    0.5
    """

    def __init__(self, ignore_id=0, name="sequence_accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_id = ignore_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        ignored = ops.equal(labels, self.ignore_id)
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels)
        weights = ops.cast(ops.logical_not(ops.all(ignored, axis=1)), self.dtype)
        if sample_weight is not None:
            weights = weights * ops.cast(sample_weight, self.dtype)
        super().update_state(ops.all(ops.logical_or(right, ignored), axis=1), weights)

    def get_config(self):
        return {**super().get_config(), "ignore_id": self.ignore_id}
