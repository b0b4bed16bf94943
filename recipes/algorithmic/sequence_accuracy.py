"""How often a whole sequence is right."""

import keras
from keras import ops


class SequenceAccuracy(keras.metrics.Mean):
    """Share of the rows in which each label has the greatest logit; labels of 0 do not count.

    A model that writes the most probable token at each place writes exactly those rows right: as
    long as it is right it reads what it is given here.
    """

    def __init__(self, name="sequence_accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.convert_to_tensor(y_true)
        best = ops.cast(ops.argmax(y_pred, axis=-1), labels.dtype)
        right = ops.logical_or(ops.equal(best, labels), ops.equal(labels, 0))
        super().update_state(ops.all(right, axis=1))
