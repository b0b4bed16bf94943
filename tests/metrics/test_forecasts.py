"""Measures of forecasts over two batches, against loops; missing targets."""

import numpy as np
import oracles
import pytest

from keras_attn.metrics import MASE, Coverage, WeightedQuantileLoss, seasonal_naive_error

LEVELS = 0.1, 0.5, 0.9


def batches():
    pairs = []
    for seed in (0, 1):
        y, q = oracles.random(2, 3, 5, seed=seed), oracles.random(2, 3, 5, 3, seed=seed + 7)
        y[0, 1, 2] = np.nan
        pairs.append((y, np.sort(q, axis=-1)))
    return pairs


def result(metric, pairs):
    for y, prediction in pairs:
        metric.update_state(y, prediction)
    again = type(metric).from_config(metric.get_config())
    assert again.get_config() == metric.get_config()
    return float(metric.result())


def numbers(pairs):
    return [
        (place[-1], y[place], q[place])
        for y, q in pairs
        for place in np.ndindex(*y.shape)
        if np.isfinite(y[place])
    ]


def test_the_naive_error_is_that_of_a_loop():
    x = oracles.random(13, 2)
    x[4, 0] = np.nan
    pairs = [[abs(x[t, c] - x[t - 3, c]) for t in range(3, 13)] for c in (0, 1)]
    expected = [np.mean([e for e in errors if e == e]) for errors in pairs]
    np.testing.assert_allclose(seasonal_naive_error(x, 3), expected)
    with pytest.raises(ValueError, match="two values that are season=5 apart"):
        seasonal_naive_error([1.0, 2.0], 5)


def test_mase_scales_each_channel():
    naive, pairs = [1.0, 2.0, 3.0, 4.0, 5.0], batches()
    expected = np.mean([abs(y - q[1]) / naive[c] for c, y, q in numbers(pairs)])
    assert result(MASE(naive, LEVELS), pairs) == pytest.approx(expected, rel=1e-5)
    points = [(y, q[..., 1]) for y, q in pairs]
    assert result(MASE(naive), points) == pytest.approx(expected, rel=1e-5)


def test_weighted_quantile_loss_divides_by_the_sizes():
    losses, sizes = 0.0, 0.0
    for _, y, q in numbers(batches()):
        sizes += abs(y)
        for level, quantile in zip(LEVELS, q, strict=True):
            losses += 2 / 3 * max(level * (y - quantile), (level - 1) * (y - quantile))
    actual = result(WeightedQuantileLoss(LEVELS), batches())
    assert actual == pytest.approx(losses / sizes, rel=1e-5)


@pytest.mark.parametrize("band", [None, (0.5, 0.9)])
def test_coverage_counts_targets_in_the_band(band):
    low = 0 if band is None else 1
    inside = [q[low] <= y <= q[2] for _, y, q in numbers(batches())]
    actual = result(Coverage(LEVELS, band), batches())
    assert 0 < actual < 1 and actual == pytest.approx(np.mean(inside), rel=1e-5)


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`naive_error` must be above 0"):
        MASE(0.0)
    with pytest.raises(ValueError, match="with 0.5 among them"):
        MASE(1.0, (0.1, 0.9))
    with pytest.raises(ValueError, match="two of the levels .*band=\\(0.2, 0.9\\)"):
        Coverage(LEVELS, (0.2, 0.9))
