"""Measures of forecasts: scaled errors, losses of quantiles and the coverage of bands."""

import keras
import numpy as np
from keras import ops

from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.quantiles import checked_levels, pinball
from keras_attn.ops.token_losses import element_weights
from keras_attn.registry import Configurable, register


def seasonal_naive_error(values, season=1):
    """Return the mean absolute error of the seasonal naive forecast, of each channel.

        mean of |x_t - x_{t - season}|

    Args:
        values: float (T,) or (T, C), the training part of a series; NaN where a value is missing.
        season: int. Steps of a season; 1 for the last value as the forecast.

    Returns:
        A float, or a list of C floats.

    Raises:
        ValueError: if `season` is below 1, or no two values are a season apart.

    Example:
        >>> from keras_attn.metrics import seasonal_naive_error
        >>> seasonal_naive_error([1.0, 2.0, 4.0])
        1.5

    Reference: [Hyndman and Koehler, 2006](https://doi.org/10.1016/j.ijforecast.2006.03.001),
        section 3.
    """
    check_sizes(season=season)
    values = np.asarray(values, "float64")
    errors = np.abs(values[season:] - values[:-season])
    counts = np.sum(~np.isnan(errors), axis=0)
    if not np.all(counts):
        raise ValueError(
            f"`values` must have two values that are season={season} apart in each channel. "
            f"Received: values of shape {values.shape}."
        )
    return (np.nansum(errors, axis=0) / counts).tolist()


class ForecastMetric(Configurable, keras.metrics.Mean):
    """Base class of the ratio of two sums over the targets that are not NaN.

    Numerator and denominator are summed over batches and replicas, so that the result is that of
    all targets seen at once; it is 0 before the first.
    """

    def add(self, y_true, y_pred, sample_weight, terms):
        """Add the terms of both sums, in the shape of the targets.

        Args:
            y_true, y_pred, sample_weight: as of `update_state`.
            terms: function of targets and predictions; it returns a numerator and a denominator.
        """
        y, predictions = ops.cast(y_true, self.dtype), ops.cast(y_pred, self.dtype)
        missing = ops.isnan(y)
        y = ops.where(missing, 0.0, y)
        weights = ops.where(missing, 0.0, element_weights(y, sample_weight, self.dtype))
        numerator, denominator = terms(y, predictions)
        self.total.assign_add(ops.sum(numerator * weights))
        self.count.assign_add(ops.sum(denominator * weights))


@register
class MASE(ForecastMetric):
    """Mean absolute error over that of the seasonal naive forecast on the training part.

        mean of |y - forecast| / naive error

    Below 1, the forecast is better than repeating the last season. Among quantiles the median is
    the forecast.

    Args:
        naive_error: float, or one for each channel: `seasonal_naive_error` of the training part.
        levels: of predicted quantiles, with 0.5 among them; None for predicted points.
        name, dtype: as in `keras.metrics.Mean`.

    Call arguments:
        y_true: float (B, H) or (B, H, C); NaN where a target is missing.
        y_pred: float, in the shape of `y_true`, or with one axis of quantiles more.
        sample_weight: optional, with the first axes of `y_true`.

    Raises:
        ValueError: if an error is not above 0, or 0.5 is missing among the levels.

    Example:
        >>> import numpy as np
        >>> from keras_attn.metrics import MASE
        >>> metric = MASE(naive_error=1.5)
        >>> metric.update_state(np.array([[5.0, 9.0]]), np.array([[4.0, 7.0]]))
        >>> float(metric.result())
        1.0

    Reference: [Hyndman and Koehler, 2006](https://doi.org/10.1016/j.ijforecast.2006.03.001),
        section 3.
    """

    def __init__(self, naive_error, levels=None, name="mase", dtype=None):
        super().__init__(name=name, dtype=dtype)
        errors = np.asarray(naive_error, "float64")
        check_that(bool(np.all(errors > 0)), "above 0", naive_error=naive_error)
        self.naive_error = errors.tolist()
        self.levels = None if levels is None else checked_levels(levels)
        has_median = self.levels is None or 0.5 in self.levels
        check_that(has_median, "quantiles with 0.5 among them", levels=levels)

    def update_state(self, y_true, y_pred, sample_weight=None):
        def terms(y, forecast):
            if self.levels is not None:
                forecast = ops.take(forecast, self.levels.index(0.5), axis=-1)
            errors = ops.abs(y - forecast) / ops.convert_to_tensor(self.naive_error, self.dtype)
            return errors, ops.ones_like(errors)

        self.add(y_true, y_pred, sample_weight, terms)


@register
class WeightedQuantileLoss(ForecastMetric):
    """Pinball losses of all targets over the sum of their absolute values, mean over the levels.

        mean over i of sum 2 |(y - q_i) ((y <= q_i) - level_i)| / sum |y|

    Args:
        levels: tuple of floats between 0 and 1.
        name, dtype: as in `keras.metrics.Mean`.

    Call arguments:
        y_true: float (B, H) or (B, H, C); NaN where a target is missing.
        y_pred: float, one axis of Q quantiles more.
        sample_weight: optional, with the first axes of `y_true`.

    Raises:
        ValueError: if a level is not between 0 and 1.

    Example:
        >>> import numpy as np
        >>> from keras_attn.metrics import WeightedQuantileLoss
        >>> metric = WeightedQuantileLoss((0.5,))
        >>> metric.update_state(np.array([[4.0]]), np.array([[[3.0]]]))
        >>> float(metric.result())
        0.25

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), appendix D.
    """

    def __init__(self, levels, name="weighted_quantile_loss", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.levels = checked_levels(levels)

    def update_state(self, y_true, y_pred, sample_weight=None):
        def terms(y, quantiles):
            return ops.mean(pinball(y, quantiles, self.levels), axis=-1), ops.abs(y)

        self.add(y_true, y_pred, sample_weight, terms)


@register
class Coverage(ForecastMetric):
    """Share of the targets inside the band between two predicted quantiles.

        mean of (q_low <= y <= q_high)

    A band of 0.1 and 0.9 should have a coverage of 0.8.

    Args:
        levels: tuple of floats between 0 and 1, those of the predicted quantiles.
        band: (low, high), two of the levels; by default the smallest and the largest.
        name, dtype: as in `keras.metrics.Mean`.

    Call arguments:
        y_true: float (B, H) or (B, H, C); NaN where a target is missing.
        y_pred: float, one axis of Q quantiles more.
        sample_weight: optional, with the first axes of `y_true`.

    Raises:
        ValueError: if a level is not between 0 and 1, or `band` is not of two of them.

    Example:
        >>> import numpy as np
        >>> from keras_attn.metrics import Coverage
        >>> metric = Coverage((0.1, 0.5, 0.9))
        >>> metric.update_state(np.array([[2.0, 8.0]]), np.array([[[1.0, 2.0, 3.0]] * 2]))
        >>> float(metric.result())
        0.5

    Reference: [Gneiting et al., 2007](https://doi.org/10.1111/j.1467-9868.2007.00587.x), section 3.
    """

    def __init__(self, levels, band=None, name="coverage", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.levels = checked_levels(levels)
        band = (min(self.levels), max(self.levels)) if band is None else tuple(band)
        are_two = len(band) == 2 and set(band) <= set(self.levels) and band[0] < band[1]
        check_that(are_two, f"(low, high), two of the levels {self.levels}", band=band)
        self.band = band

    def update_state(self, y_true, y_pred, sample_weight=None):
        def terms(y, quantiles):
            low, high = (ops.take(quantiles, self.levels.index(x), axis=-1) for x in self.band)
            inside = ops.cast(ops.logical_and(low <= y, y <= high), self.dtype)
            return inside, ops.ones_like(inside)

        self.add(y_true, y_pred, sample_weight, terms)
