"""Perplexity of a language model."""

import keras
from keras import ops

from keras_attn.ops.token_losses import token_losses, token_weights
from keras_attn.registry import register


@register
class Perplexity(keras.metrics.Mean):
    """exp of the mean negative log-likelihood of the real tokens, without label smoothing.

        exp(-sum_i log softmax(z_i)(y_i) / #{i: y_i != ignore_class})

    Sum and number are kept apart over batches and replicas, so that the result is that of all
    tokens seen at once. Beside `LabelSmoothedCrossentropy` in a training step it costs nothing
    measurable, for it repeats that loss's own softmax. It is 1 before the first token.

    Args:
        ignore_class: int. Tokens with this label do not count; None counts all.
        name: optional name.
        dtype: of the sums; optional.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits; or (B, T), the losses of tokens as
            `keras_attn.layers.AdaptiveSoftmax` gives them.
        sample_weight: optional, (B,) or (B, T): tokens count this many times.

    Example:

    >>> import numpy as np
    >>> from keras_attn.metrics import Perplexity
    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[3, 1, 0]]), np.zeros((1, 3, 7)))
    >>> round(float(metric.result()), 3)
    7.0

    Reference: Jelinek et al., 1977 (https://doi.org/10.1121/1.2016299).
    """

    def __init__(self, ignore_class=0, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = ignore_class

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        losses = token_losses(labels, logits, self.ignore_class)
        weights = token_weights(labels, self.ignore_class, sample_weight)
        # Flat, for Mean would first average each row, and call rows of unequal length equal.
        super().update_state(ops.reshape(losses, (-1,)), ops.reshape(weights, (-1,)))

    def result(self):
        return ops.exp(super().result())

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}
