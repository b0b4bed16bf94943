"""Losses of forecasts: loops, SciPy's distributions, and missing targets."""

import math

import numpy as np
import oracles
import pytest

from keras_attn.losses import DistributionLoss, Quantile
from keras_attn.losses.forecasts import log_gamma

B, H, C = 2, 3, 5
LEVELS = 0.1, 0.5, 0.8


def targets(missing=True):
    y = oracles.random(B, H, C)
    if missing:
        y[0, 1, 2] = y[1, 0] = np.nan
    return y


def test_quantile_loss_is_that_of_loops():
    y, q = targets(), oracles.random(B, H, C, 3, seed=1)
    expected = np.zeros(y.shape)
    for place in np.ndindex(*y.shape):
        for level, quantile in zip(LEVELS, q[place], strict=True):
            error = y[place] - quantile
            if not np.isnan(error):
                expected[place] += 2 * (level * error if error > 0 else (level - 1) * error)
    np.testing.assert_allclose(Quantile(LEVELS, "none")(y, q), expected, atol=1e-6)
    observed = np.isfinite(y).sum()
    np.testing.assert_allclose(Quantile(LEVELS)(y, q), expected.sum() / observed, rtol=1e-5)
    weights = np.array([1.0, 3.0])
    weighted = (expected * weights[:, None, None]).sum() / observed
    np.testing.assert_allclose(Quantile(LEVELS)(y, q, sample_weight=weights), weighted, rtol=1e-5)


def test_the_median_of_points_is_the_absolute_error():
    y, x = targets(missing=False), oracles.random(B, H, C, seed=1)
    np.testing.assert_allclose(Quantile(0.5)(y, x), np.abs(y - x).mean(), rtol=1e-5)
    assert Quantile(np.array([0.25, 0.5], "float32")).levels == (0.25, 0.5)


def log_density(name, y, parameters):
    if name == "normal":
        loc, scale = parameters
        return -0.5 * ((y - loc) / scale) ** 2 - math.log(scale * math.sqrt(2 * math.pi))
    if name == "student_t":
        df, loc, scale = parameters
        constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2)
        z = (y - loc) / scale
        power = (df + 1) / 2 * math.log(1 + z * z / df)
        return constant - 0.5 * math.log(df * math.pi) - math.log(scale) - power
    count, logits = parameters
    p = 1 / (1 + math.exp(-logits))
    choices = math.lgamma(count + y) - math.lgamma(y + 1) - math.lgamma(count)
    return choices + count * math.log(1 - p) + y * math.log(p)


@pytest.mark.parametrize("name, count", [("normal", 2), ("student_t", 3), ("negative_binomial", 2)])
def test_distribution_loss_is_that_of_densities(name, count):
    y, parameters = targets(), np.abs(oracles.random(B, H, C, count, seed=1)) + 0.3
    if name == "negative_binomial":
        y = np.round(np.abs(y) * 9)
        parameters[..., 1] -= 1
    expected = np.zeros(y.shape)
    for place in np.ndindex(*y.shape):
        if np.isfinite(y[place]):
            expected[place] = -log_density(name, y[place], parameters[place].tolist())
    np.testing.assert_allclose(
        DistributionLoss(name, "none")(y, parameters), expected, rtol=2e-5, atol=2e-5
    )


def test_log_gamma_of_small_and_large_numbers():
    x = np.array([1e-3, 0.5, 1, 2, 7.3, 1000, 1e6])
    np.testing.assert_allclose(log_gamma(x), [math.lgamma(v) for v in x], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", [Quantile((0.3,)), DistributionLoss("student_t")])
def test_missing_targets_have_no_gradient(loss):
    tf = pytest.importorskip("tensorflow")
    count = 1 if isinstance(loss, Quantile) else 3
    predictions = tf.constant(1 + np.abs(oracles.random(B, H, C, count)), "float32")
    y = targets()
    with tf.GradientTape() as tape:
        tape.watch(predictions)
        total = loss(y, predictions)
    gradient = tape.gradient(total, predictions).numpy()
    assert np.isfinite(gradient).all()
    assert not gradient[np.isnan(y)].any() and gradient[~np.isnan(y)].any()


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`levels` must be numbers between 0 and 1"):
        Quantile((0.5, 1.0))
    with pytest.raises(ValueError, match="`levels` must be numbers between 0 and 1"):
        Quantile(None)
    with pytest.raises(ValueError, match="`distribution` must be one of .*'gaussian'"):
        DistributionLoss("gaussian")


# Rows and times are as many, so that the second would broadcast; so would the first.
@pytest.mark.parametrize("shape", [(5, 5, 2, 1), (5, 5, 1, 3), (5, 5, 2, 4)])
def test_predictions_with_other_axes_than_targets_and_levels_are_refused(shape):
    targets = np.zeros((5, 5) if shape[2] == 1 else (5, 5, 2))
    with pytest.raises(ValueError, match="then one of 3 quantiles. Received: shapes .5, 5, "):
        Quantile((0.1, 0.5, 0.9))(targets, np.zeros(shape))
