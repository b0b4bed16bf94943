"""Measures of forecasts: MASE, weighted quantile loss, coverage of a band."""

import numpy as np

from keras_attn import metrics

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MEDIAN = LEVELS.index(0.5)


def forecast_scores(quantiles, targets, scales, series, points=None):
    """Return the measures of quantiles, a dict; missing targets do not count.

    MASE is the mean over series and channels of the mean absolute error, in units of `scales`. The
    weighted quantile loss is the mean over levels of 2 sum(pinball) / sum|y|. The coverage is the
    share of targets between the first and the last quantile.

    Args:
        quantiles: (N, H, C, Q), of `LEVELS`.
        targets: (N, H, C).
        scales: (S, C), the error of the seasonal naive forecast in training; NaN leaves out.
        series: int (N,), the series of each window.
        points: forecasts (N, H, C), by default the median.
    """
    points = quantiles[..., MEDIAN] if points is None else points
    observed = np.isfinite(targets)
    errors = np.where(observed, np.abs(targets - points), 0.0)
    sums, counts = np.zeros_like(scales), np.zeros_like(scales)
    np.add.at(sums, series, errors.sum(axis=1))
    np.add.at(counts, series, observed.sum(axis=1))
    is_known = (counts > 0) & np.isfinite(scales)
    scaled = sums[is_known] / counts[is_known] / scales[is_known]
    scores = {"mase": float(scaled.mean()) if len(scaled) else None}
    for metric in (metrics.WeightedQuantileLoss(LEVELS), metrics.Coverage(LEVELS)):
        metric.update_state(targets, quantiles)
        scores[metric.name] = float(metric.result())
    return scores
