"""Losses of forecasts: of quantiles, and of the parameters of a distribution."""

import math

import keras
from keras import ops

from keras_attn.ops.checks import check_choice
from keras_attn.ops.quantiles import checked_levels, pinball
from keras_attn.ops.token_losses import element_weights, reduce_losses
from keras_attn.registry import Configurable, register


class ForecastLoss(Configurable, keras.losses.Loss):
    """Base class of losses of next values, which leave out targets that are NaN.

    A subclass defines `losses_of(y, predictions)`: of targets without NaN, in the shape of the
    targets.
    """

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses, observed = self._losses(y_true, y_pred)
        if sample_weight is not None:
            sample_weight = element_weights(losses, sample_weight, losses.dtype)
        return reduce_losses(losses, observed, sample_weight, self.reduction)

    def call(self, y_true, y_pred):
        """Return the loss of each target, 0 where it is NaN."""
        return self._losses(y_true, y_pred)[0]

    def _losses(self, y_true, y_pred):
        y_pred = ops.convert_to_tensor(y_pred)
        dtype = keras.backend.result_type(y_pred.dtype, "float32")
        y, y_pred = ops.cast(y_true, dtype), ops.cast(y_pred, dtype)
        missing = ops.isnan(y)
        # Before any product: 0 times NaN is NaN, in the gradient too.
        losses = self.losses_of(ops.where(missing, 0.0, y), y_pred)
        return ops.where(missing, 0.0, losses), ops.cast(ops.logical_not(missing), dtype)


@register
class Quantile(ForecastLoss):
    """Pinball loss of quantiles, which makes each predicted number the quantile of its level.

        loss(y, q) = sum_i 2 |(y - q_i) ((y <= q_i) - level_i)|

    At level 0.5 it is the absolute error. Targets that are NaN are left out, and means divide by
    the number of the others, over all replicas. All is in float32. Time and memory O(B H C Q).

    Use it for forecasts with bands; with the level 0.5 alone for medians.

    Args:
        levels: tuple of floats between 0 and 1.
        reduction, name: as in `keras.losses.Loss`.

    Call arguments:
        y_true: float (B, H) or (B, H, C); NaN where a target is missing.
        y_pred: float, one axis of Q quantiles more; for one level also in the shape of `y_true`.
        sample_weight: optional, with the first axes of `y_true`.

    Returns:
        Scalar; without a reduction the shape of `y_true`.

    Raises:
        ValueError: if a level is not between 0 and 1, or `y_pred` has not one number for each.

    Example:
        >>> import numpy as np
        >>> from keras_attn.losses import Quantile
        >>> loss = Quantile((0.1, 0.9))
        >>> quantiles = np.array([[[0.0, 2.0]]])  # of one target, which is 1 or missing
        >>> round(float(loss(np.array([[1.0]]), quantiles)), 4)
        0.4
        >>> float(loss(np.array([[np.nan]]), quantiles))
        0.0

    Differs from the paper: the factor 2 and missing targets, as in Chronos-Bolt, whose mean counts
        missing targets too.

    Reference: [Koenker and Bassett, 1978](https://doi.org/10.2307/1913643), section 3; for
        forecasts: [Wen et al., 2017](https://arxiv.org/abs/1711.11053), section 3.1.
    """

    def __init__(self, levels, reduction="sum_over_batch_size", name="quantile"):
        super().__init__(name=name, reduction=reduction)
        self.levels = checked_levels(levels)

    def losses_of(self, y, predictions):
        """Return the loss of each target."""
        if len(predictions.shape) == len(y.shape) and len(self.levels) == 1:
            predictions = ops.expand_dims(predictions, -1)
        # Else shapes that happen to broadcast would compare numbers of different times.
        fit = len(predictions.shape) == len(y.shape) + 1
        if not fit or predictions.shape[-1] not in (None, len(self.levels)):
            raise ValueError(
                "`y_pred` must have the axes of `y_true`, then one of "
                f"{len(self.levels)} quantiles. Received: shapes {tuple(predictions.shape)} and "
                f"{tuple(y.shape)}."
            )
        return ops.sum(pinball(y, predictions, self.levels), axis=-1)


@register
class DistributionLoss(ForecastLoss):
    """Negative log-likelihood of targets under predicted distributions.

        loss = -log p(y | parameters)

    `layers.ForecastHead` and `models.patch_tst` with the same `distribution` give the parameters,
    on the last axis. Targets that are NaN are left out, and means divide by the number of the
    others, over all replicas. All is in float32. Time and memory O(B H C).

    Use it for forecasts from which samples are drawn; for counts with "negative_binomial".

    Args:
        distribution: "student_t", of df, loc and scale; "normal", of loc and scale; or
            "negative_binomial", of total_count and logits, for counts from 0 on.
        reduction, name: as in `keras.losses.Loss`.

    Call arguments:
        y_true: float (B, H) or (B, H, C); NaN where a target is missing.
        y_pred: float, one axis of parameters more.
        sample_weight: optional, with the first axes of `y_true`.

    Returns:
        Scalar; without a reduction the shape of `y_true`.

    Raises:
        ValueError: if `distribution` is unknown.

    Example:
        >>> import numpy as np
        >>> from keras_attn.losses import DistributionLoss
        >>> loss = DistributionLoss("normal")
        >>> round(float(loss(np.array([[1.0]]), np.array([[[1.0, 1.0]]]))), 4)
        0.9189

    Differs from the paper: the Student t distribution, and missing targets.

    Reference: [Salinas et al., 2020](https://arxiv.org/abs/1704.04110), section 3.1.
    """

    def __init__(self, distribution, reduction="sum_over_batch_size", name="distribution_loss"):
        super().__init__(name=name, reduction=reduction)
        check_choice(tuple(_LOGS), distribution=distribution)
        self.distribution = distribution

    def losses_of(self, y, predictions):
        """Return the loss of each target."""
        return -_LOGS[self.distribution](y, *ops.unstack(predictions, axis=-1))


def _log_normal(y, loc, scale):
    z = (y - loc) / scale
    return -0.5 * ops.square(z) - ops.log(scale) - 0.5 * math.log(2 * math.pi)


def _log_student_t(y, df, loc, scale):
    z = (y - loc) / scale
    constant = log_gamma((df + 1) / 2) - log_gamma(df / 2) - 0.5 * ops.log(math.pi * df)
    return constant - ops.log(scale) - (df + 1) / 2 * ops.log1p(ops.square(z) / df)


def _log_negative_binomial(y, total_count, logits):
    # -softplus(logits) and -softplus(-logits) are the logarithms of 1 - p and of p.
    likelihood = total_count * -ops.softplus(logits) - y * ops.softplus(-logits)
    choices = log_gamma(total_count + y) - log_gamma(1.0 + y) - log_gamma(total_count)
    return likelihood + choices


_LOGS = {
    "student_t": _log_student_t,
    "normal": _log_normal,
    "negative_binomial": _log_negative_binomial,
}


def log_gamma(x):
    """Return log Gamma(x) for x > 0, by Stirling's series of x + 6.

    Keras has no such operation.
    """
    product = x
    for step in range(1, 6):
        product = product * (x + step)  # Gamma(x + 6) = x (x + 1) ... (x + 5) Gamma(x)
    y = x + 6.0
    series = 1.0 / (12.0 * y) - 1.0 / (360.0 * y**3) + 1.0 / (1260.0 * y**5)
    return (y - 0.5) * ops.log(y) - y + 0.5 * math.log(2 * math.pi) + series - ops.log(product)
