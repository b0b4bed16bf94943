"""Likelihood of pixels whose values have an order."""

import keras
from keras import ops

from keras_attn.ops import logistics
from keras_attn.ops.checks import check_shape, check_sizes
from keras_attn.ops.token_losses import element_weights, reduce_losses
from keras_attn.registry import Configurable, register


@register
class MixtureOfLogistics(Configurable, keras.losses.Loss):
    """Negative log-likelihood of pixels under a mixture of discretised logistics.

        p(v) = sum_k a_k prod_c [F((x_c + h - m_kc) / s_kc) - F((x_c - h - m_kc) / s_kc)],
        m_kc = mean_kc + sum_{b < c} tanh(r_kcb) x_b,   F the sigmoid

    where x = 2 v / (V - 1) - 1 is the value v on [-1, 1], h = 1 / (V - 1) half of its bin, and the
    bins of 0 and V - 1 reach to the outside, so that the V values of a channel sum to one. For each
    pixel the model gives `num_parameters` numbers: K logits of a, then C times K means, C times K
    logarithms of s (at least -7), and K coefficients r for each pair of channels (red on green, red
    on blue, green on blue). Time and memory O(C K) a pixel, where a softmax takes O(C V).

    As a loss it is the mean over all values of the batch, of all replicas: nats per dimension,
    which `BitsPerDim(likelihood=...)` converts to bits. Everything is float64 if the parameters
    are, else float32.

    Use it for images whose values are ordered, at less cost than a softmax.

    Args:
        num_mixtures: int. Number of logistics K.
        channels: int. Values of a pixel C.
        num_values: int. Different values V of a channel.
        reduction: as in `keras.losses.Loss`: "sum_over_batch_size" divides by the number of values;
            "mean_with_sample_weight" by their weighted number; "sum"; or "none", (B, ...).
        name: optional name.

    Call arguments:
        y_true: integer tensor (B, ..., C) of values 0 .. V - 1.
        y_pred: float tensor (B, ..., `num_parameters`).
        sample_weight: optional, (B,) or (B, ...): weights of the pixels' losses.

    Returns:
        Scalar: under `tf.distribute` this replica's share of the loss.

    Raises:
        ValueError: if a size is too small, or values and parameters do not fit.

    Example:
        >>> import numpy as np
        >>> from keras_attn.losses import MixtureOfLogistics
        >>> loss = MixtureOfLogistics(num_mixtures=5)
        >>> loss.num_parameters  # units of the model's last layer
        50
        >>> parameters = np.zeros((1, 64, 50))
        >>> values = loss.sample(parameters, seed=0)
        >>> values.shape, loss.log_probability(values, parameters).shape
        (TensorShape([1, 64, 3]), TensorShape([1, 64]))

    Differs from the paper: the probability of a bin is exact, where the authors' code takes the
        density at its middle below 1e-5; samples are whole values, also those that condition the
        next channel.

    Reference: [Salimans et al., 2017](https://arxiv.org/abs/1701.05517), sections 2.1 and 2.2;
        [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.4.
    """

    def __init__(
        self,
        num_mixtures=10,
        channels=3,
        num_values=256,
        reduction="sum_over_batch_size",
        name="mixture_of_logistics",
    ):
        super().__init__(name=name, reduction=reduction)
        check_sizes(num_mixtures=num_mixtures, channels=channels)
        check_sizes(least=2, num_values=num_values)
        self.num_mixtures = num_mixtures
        self.channels = channels
        self.num_values = num_values

    @property
    def num_parameters(self):
        """Number of parameters that a model gives for each pixel."""
        return logistics.num_parameters(self.num_mixtures, self.channels)

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses = self.call(y_true, y_pred)
        if sample_weight is not None:
            sample_weight = element_weights(losses, sample_weight, losses.dtype)
        values = ops.full_like(losses, self.channels)
        return reduce_losses(losses, values, sample_weight, self.reduction)

    def call(self, y_true, y_pred):
        """Return -log p of each pixel, all its channels together: (B, ...)."""
        return -self.log_probability(y_true, y_pred)

    def log_probability(self, values, parameters):
        """Return log p of each pixel (B, ...).

        Args:
            values: (B, ..., C), 0 .. V - 1. parameters: (B, ..., `num_parameters`).
        """
        values, parameters = ops.convert_to_tensor(values), ops.convert_to_tensor(parameters)
        self._check(parameters)
        check_shape(values, "y_true", (*parameters.shape[:-1], self.channels))
        return logistics.log_probability(values, parameters, self.num_mixtures, self.num_values)

    def sample(self, parameters, seed=None):
        """Draw values from the mixtures, int32 (B, ..., C).

        Args:
            parameters: (B, ..., `num_parameters`).
            seed: int or `keras.random.SeedGenerator`.
        """
        parameters = ops.convert_to_tensor(parameters)
        shape = (*ops.shape(parameters)[:-1], self.num_mixtures + self.channels)
        return self.sample_by(parameters, keras.random.uniform(shape, seed=seed))

    def sample_by(self, parameters, uniform):
        """Draw values by the uniform random numbers `uniform` (B, ..., K + C)."""
        parameters = ops.convert_to_tensor(parameters)
        self._check(parameters)
        return logistics.sample(
            parameters, uniform, self.num_mixtures, self.channels, self.num_values
        )

    def _check(self, parameters):
        check_shape(parameters, "y_pred", (*parameters.shape[:-1], self.num_parameters))
