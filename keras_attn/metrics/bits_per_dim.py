"""How many bits a value of an image takes."""

import math

import keras
from keras import ops

from keras_attn.ops.token_weights import element_weights, token_losses, token_weights
from keras_attn.registry import register


@register
class BitsPerDim(keras.metrics.Mean):
    """Negative log-likelihood in bits, divided by the number of values.

        -sum_i log_2 p(v_i) / #{i},   i over pixels and channels (or v_i != ignore_id)

    Of logits every label that is not padding is a value. Of a likelihood such as
    `MixtureOfLogistics` all of `y_true` are values, zeros too. Sum and number are kept apart over
    batches and replicas; it is 0 before the first value.

    Args:
        likelihood: optional loss whose `call(y_true, y_pred)` gives -log p of whole pixels, as
            `MixtureOfLogistics` does; by default the softmax of logits.
        ignore_id: int. Labels of logits with this id do not count.
        name: optional name.
        dtype: of the sums; optional.

    Call arguments:
        y_true: integer tensor (B, T) of labels; with `likelihood`, what that takes.
        y_pred: float tensor (B, T, V) of logits, or (B, T), the losses of labels; with
            `likelihood`, what that takes.
        sample_weight: optional, (B,) or (B, T): values, or pixels, count this many times.

    Example:

    >>> import numpy as np
    >>> from keras_attn.metrics import BitsPerDim
    >>> metric = BitsPerDim()
    >>> metric.update_state(np.array([[3, 256, 1]]), np.zeros((1, 3, 256 + 1)))
    >>> round(float(metric.result()), 3)
    8.006

    Reference: van den Oord et al., 2016 (https://arxiv.org/abs/1601.06759), section 5.1;
    Parmar et al., 2018 (https://arxiv.org/abs/1802.05751), section 5.1.
    """

    def __init__(self, likelihood=None, ignore_id=0, name="bits_per_dim", dtype=None):
        super().__init__(name=name, dtype=dtype)
        if isinstance(likelihood, dict):
            likelihood = keras.saving.deserialize_keras_object(likelihood)
        if not (likelihood is None or isinstance(likelihood, keras.losses.Loss)):
            raise ValueError(
                "`likelihood` must be a loss, such as `MixtureOfLogistics`, or None for logits. "
                f"Received: likelihood={likelihood!r}"
            )
        self.likelihood = likelihood
        self.ignore_id = ignore_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        values, predictions = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        if self.likelihood is None:
            losses = token_losses(values, predictions, self.ignore_id)
            weights = token_weights(values, self.ignore_id, sample_weight)
            dimensions = ops.sum(weights)
        else:
            losses = self.likelihood.call(values, predictions)
            weights = element_weights(losses, sample_weight)
            dimensions = ops.sum(weights) * _quotient(ops.size(values), ops.size(losses))
        self.total.assign_add(ops.cast(ops.sum(losses * weights) / math.log(2.0), self.dtype))
        self.count.assign_add(ops.cast(dimensions, self.dtype))

    def get_config(self):
        return {
            **super().get_config(),
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
            "ignore_id": self.ignore_id,
        }


def _quotient(size, other):
    return ops.cast(size, "float32") / ops.maximum(ops.cast(other, "float32"), 1.0)
