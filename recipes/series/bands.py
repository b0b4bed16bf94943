"""Width of a model's bands, set by their coverage of the validation."""

import numpy as np

from keras_attn.backend.replicas import whole_values

from .scores import LEVELS, MEDIAN

# Bounds of the factor, which few values, such as those of one window, do not determine.
LEAST, MOST = 1 / 3, 3.0


def calibrate(model, quantiles, targets):
    """Multiply the distances of a model's quantiles from their median; return the factor.

    The factor is that with which the band of the first and the last quantile covers its share of
    the targets. It is part of the weights of the head, from which quantiles are linear.

    Args:
        model: a `Forecaster` of `LEVELS`.
        quantiles: its forecasts (N, H, C, Q) of the validation.
        targets: (N, H, C), NaN where one is missing.
    """
    factor = band_factor(quantiles, targets)
    with whole_values(model.head.variables):
        weights = model.head.get_weights()
    model.head.set_weights([_widened(weight, factor) for weight in weights])
    return factor


def band_factor(quantiles, targets):
    """Return the factor of `calibrate`."""
    observed = np.isfinite(targets)
    errors = (targets - quantiles[..., MEDIAN])[observed]
    widths = quantiles[..., [0, -1]][observed] - quantiles[..., MEDIAN][observed][:, None]
    width = np.where(errors > 0, widths[:, 1], -widths[:, 0])
    with np.errstate(divide="ignore"):
        ratios = np.abs(errors) / np.maximum(width, 0)  # quantiles may cross
    share = LEVELS[-1] - LEVELS[0]
    return float(np.clip(np.quantile(ratios, share, method="lower"), LEAST, MOST))


def _widened(weight, factor):
    """Return the kernel (Q, F, H) or the bias (Q, H) of a head."""
    median = weight[MEDIAN]
    return median + factor * (weight - median)
