"""Forecasts of series of any length, for any number of times, beside loops in NumPy."""

import functools

import numpy as np
import oracles
import pytest

from keras_attn import models
from keras_attn.generation import forecast

T, C, H, LEVELS = 11, 2, 3, (0.1, 0.5, 0.7)
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8}


@functools.cache
def patch_tst(**options):
    arguments = {"patch_length": 5, "stride": 3, "norm": "layer_norm", **SIZES, **options}
    model = models.patch_tst(T, C, H, **arguments)
    oracles.scramble(model, seed=1, scale=0.3)
    return model


def series(rows, times, seed=3):
    values = np.random.default_rng(seed).normal(size=(rows, times, C)).astype("float32")
    values[0, 2, 1] = values[-1, -1, 0] = np.nan
    return values


def with_front(values):
    """The last T values, with missing ones in front."""
    front = np.full((len(values), T, C), np.nan, "float32")
    return np.concatenate([front, values], axis=1)[:, -T:]


def loop(model, values, horizon, levels):
    """The quantiles of a model, one block after the other."""
    contexts = [values] * len(levels)
    blocks = [np.asarray(model(with_front(values)))]  # (B, H, C, Q)
    while len(blocks) * H < horizon:
        contexts = [
            np.concatenate([context, blocks[-1][..., q]], axis=1)
            for q, context in enumerate(contexts)
        ]
        paths = np.asarray(model(np.concatenate([*map(with_front, contexts)])))
        paths = np.concatenate(np.split(paths, len(levels)), axis=-1)  # (B, H, C, Q Q)
        blocks.append(np.moveaxis(np.quantile(paths, levels, axis=-1), 0, -1))
    return np.concatenate(blocks, axis=1)[:, :horizon]


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 13])
def test_quantiles_beyond_the_horizon_are_those_of_all_quantiles(times):
    model = patch_tst(quantiles=LEVELS)
    values = series(3, 13)[:, -times:]
    outputs = forecast(model, values, 7)
    expected = loop(model, values, 7, LEVELS)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(outputs["quantiles"], expected, atol=1e-5)
    np.testing.assert_array_equal(outputs["mean"], outputs["quantiles"][..., 1])


@pytest.mark.slow
def test_points_are_appended_and_series_of_a_list_have_missing_values_in_front():
    model, values = patch_tst(), series(1, 7)[0]
    outputs = forecast(model, [values, values[:4]], 5)
    assert list(outputs) == ["mean"] and outputs["mean"].shape == (2, 5, C)
    for row, mean in zip((values, values[:4]), outputs["mean"], strict=True):
        first = np.asarray(model(with_front(row[None])))[0]
        second = np.asarray(model(with_front(np.concatenate([row, first])[None])))[0]
        np.testing.assert_allclose(mean, np.concatenate([first, second])[:5], atol=1e-5)


def test_the_median_lies_between_levels_on_both_sides_of_it():
    model = patch_tst(quantiles=(0.2, 0.4, 0.9))
    outputs = forecast(model, series(2, T))
    low, high = outputs["quantiles"][..., 1], outputs["quantiles"][..., 2]
    np.testing.assert_allclose(outputs["mean"], low + (high - low) / 5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "student_t", "negative_binomial"])
def test_the_forecast_of_a_distribution_is_its_mean(name):
    model, values = patch_tst(distribution=name, scaler="mean"), abs(series(2, T))
    parameters = np.asarray(model(values), "float64")
    if name == "negative_binomial":
        count, logits = parameters[..., 0], parameters[..., 1]
        success = 1 / (1 + np.exp(-logits))
        expected = count * success / (1 - success)
    else:
        expected = parameters[..., -2]  # loc, before the scale
    mean = np.asarray(forecast(model, values)["mean"])
    np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"horizon": 0}, "`horizon` must be an integer of at least 1"),
        ({"values": np.full((1, T, C), np.inf)}, "`values` must be finite numbers, or NaN"),
        ({"values": [1.0, 2.0]}, "`values` must be of shape"),
        ({"values": np.ones((2, 0, C))}, r"`values` must be of shape .* shape \(2, 0, 2\)\.$"),
        ({"values": np.ones((2, T))}, r"\(batch, length, 2\), as the model reads.* \(2, 11\)\.$"),
        ({"values": np.ones((1, T, C + 1))}, r"\(batch, length, 2\), as the model reads"),
        ({"values": [np.ones((3, C)), np.ones(3)]}, "`values` must be of shape .* series of"),
        ({"values": [["high", "low"]]}, "`values` must be numbers of one shape"),
        ({"values": [[1.0, 2.0], [3.0, -np.inf]]}, r"finite numbers.* -inf at \(1, 1\)\.$"),
        ({"model": None}, "`model` must be a `Forecaster`"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        forecast(**{"model": patch_tst(), "values": series(1, T), **arguments})


def test_a_model_of_masked_patches_forecasts_nothing():
    with pytest.raises(ValueError, match="`model` must be a model of the next values"):
        forecast(models.patch_tst(T, C, masking=0.4, patch_length=5, **SIZES), series(1, T))
