"""Base of the metrics of tokens; accuracy of tokens and of whole sequences."""

import keras
from keras import ops

from keras_attn.ops.checks import check_shape
from keras_attn.ops.ids import narrow
from keras_attn.ops.token_losses import element_weights, token_weights
from keras_attn.registry import Configurable, register


class TokenMetric(Configurable, keras.metrics.Mean):
    """Mean over the tokens whose label is not `ignore_class`.

    Sum and number are kept apart over batches and replicas, so that the result is that of all
    tokens seen at once.
    """

    def __init__(self, ignore_class, name, dtype):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = ignore_class

    def add(self, values, weights, counts=None):
        """Add the weighted sum of `values`, and the sum of `counts`, by default the weights."""
        values, weights = ops.cast(values, self.dtype), ops.cast(weights, self.dtype)
        counts = weights if counts is None else ops.cast(counts, self.dtype)
        self.total.assign_add(ops.sum(values * weights))
        self.count.assign_add(ops.sum(counts))


@register
class TokenAccuracy(TokenMetric):
    """Share of the real tokens whose label has the greatest logit (the first such, in a tie).

        #{i: y_i != ignore_class and y_i = argmax_v z_i(v)} / #{i: y_i != ignore_class}

    The result is that of all tokens of all batches and replicas at once. One pass over the logits,
    O(B T V).

    Args:
        ignore_class: int. Tokens with this label do not count; None counts all.
        name, dtype: as in `keras.metrics.Mean`; `dtype` is that of the sums.

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
        super().__init__(ignore_class, name, dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, right = _labels_and_right(y_true, y_pred)
        self.add(right, token_weights(labels, self.ignore_class, sample_weight))


@register
class SequenceAccuracy(TokenMetric):
    """Share of the sequences in which every real token's label has the greatest logit.

        #{b: y_bi = ignore_class or y_bi = argmax_v z_bi(v) for all i} / B

    Of a model that predicts y_i from the right y_1 .. y_{i-1} it is also the share that greedy
    decoding writes right: as long as that is right it reads the same. A row of `ignore_class` alone
    does not count. One pass over the logits, O(B T V).

    Args:
        ignore_class: int. Tokens with this label may be predicted as any; None counts all.
        name, dtype: as in `keras.metrics.Mean`; `dtype` is that of the sums.

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
        super().__init__(ignore_class, name, dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, right = _labels_and_right(y_true, y_pred)
        ignored = ops.equal(token_weights(labels, self.ignore_class), 0.0)
        has_real_token = ops.cast(ops.logical_not(ops.all(ignored, axis=1)), "float32")
        weights = has_real_token * element_weights(has_real_token, sample_weight)
        self.add(ops.all(ops.logical_or(right, ignored), axis=1), weights)


def _labels_and_right(y_true, y_pred):
    """Return the labels and, of the same shape, True where the label has the greatest logit."""
    labels, logits = ops.convert_to_tensor(narrow(y_true)), ops.convert_to_tensor(y_pred)
    check_shape(labels, "y_true", tuple(logits.shape[:-1]))
    best = ops.argmax(logits, axis=-1)
    return labels, ops.equal(best, ops.cast(labels, best.dtype))
