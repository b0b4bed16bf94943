"""Accuracy of tokens and of whole sequences."""

import keras
from keras import ops

from keras_attn.ops.checks import check_shape
from keras_attn.ops.token_losses import token_weights
from keras_attn.registry import register


@register
class TokenAccuracy(keras.metrics.Mean):
    """Share of the real tokens whose label has the greatest logit (the first such, in a tie).

        #{i: y_i != ignore_class and y_i = argmax_v z_i(v)} / #{i: y_i != ignore_class}

    Sum and number are kept apart over batches and replicas. One pass over the logits, O(B T V).

    Args:
        ignore_class: int. Tokens with this label do not count; None counts all.
        name: optional name.
        dtype: of the sums; optional.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits.
        sample_weight: optional, (B,) or (B, T): tokens count this many times.

    Example:

    >>> import numpy as np
    >>> from keras_attn.metrics import TokenAccuracy
    >>> metric = TokenAccuracy()
    >>> metric.update_state(np.array([[1, 2, 0]]), np.eye(3)[None, [1, 1, 0]])
    >>> float(metric.result())
    0.5
    """

    def __init__(self, ignore_class=0, name="token_accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = ignore_class

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        check_shape(labels, "y_true", tuple(logits.shape[:-1]))
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels)
        weights = token_weights(labels, self.ignore_class, sample_weight)
        # Flat, for Mean would first average each row, and call rows of unequal length equal.
        super().update_state(ops.reshape(right, (-1,)), ops.reshape(weights, (-1,)))

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}


@register
class SequenceAccuracy(keras.metrics.Mean):
    """Share of the sequences in which every real token's label has the greatest logit.

        #{b: y_bi = ignore_class or y_bi = argmax_v z_bi(v) for all i} / B

    Of a model that predicts y_i from the right y_1 .. y_{i-1} it is also the share that greedy
    decoding writes right: as long as that is right it reads the same. A row of `ignore_class` alone
    does not count. One pass over the logits, O(B T V).

    Args:
        ignore_class: int. Tokens with this label may be predicted as any; None counts all.
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

    def __init__(self, ignore_class=0, name="sequence_accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = ignore_class

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        ignored = ops.equal(token_weights(labels, self.ignore_class), 0.0)
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels)
        weights = ops.cast(ops.logical_not(ops.all(ignored, axis=1)), self.dtype)
        if sample_weight is not None:
            weights = weights * ops.cast(sample_weight, self.dtype)
        super().update_state(ops.all(ops.logical_or(right, ignored), axis=1), weights)

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}
