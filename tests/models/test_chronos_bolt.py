"""`chronos_bolt` and `PatchForecaster`: missing values, lengths and levels."""

import numpy as np
import oracles
import pytest

from keras_attn import models

T, H, P = 13, 5, 4
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
SIZES |= {"context_length": T, "prediction_length": H, "patch_length": P}
VALUES = np.random.default_rng(0).normal(size=(3, T)).astype("float32")
VALUES[0, :2], VALUES[1, 5:7] = np.nan, np.nan


@pytest.fixture(scope="module")
def model():
    model = models.chronos_bolt(**SIZES, quantiles=(0.1, 0.5, 0.7))
    oracles.scramble(model)
    return model


def test_missing_patches_in_front_change_nothing(model):
    expected = model(VALUES[:, 4:])
    assert expected.shape == (3, H, 3)
    padded = np.concatenate([np.full((3, P), np.nan, "float32"), VALUES[:, 4:]], axis=1)
    np.testing.assert_allclose(model(padded), expected, atol=1e-5)


@pytest.mark.parametrize("count", [3, H])
def test_as_many_rows_as_levels_or_values_are_rows_alone(count, model):
    """Keras takes a second term (B, 1, 1) for a bias where B is another axis too."""
    rows = np.random.default_rng(1).normal(size=(count, T)) + 9.0 * np.arange(count)[:, None]
    alone = [np.array(model(row[None]))[0] for row in rows]
    np.testing.assert_allclose(model(rows), alone, rtol=1e-5, atol=1e-5)


def test_the_last_part_of_a_longer_series_is_read(model):
    longer = np.concatenate([9 * VALUES[:, :6], VALUES], axis=1)
    np.testing.assert_allclose(model(longer), model(VALUES), atol=1e-6)


def test_quantiles_follow_level_and_scale(model):
    moved = model(4 * VALUES - 2)
    np.testing.assert_allclose(moved, 4 * np.array(model(VALUES)) - 2, rtol=1e-4, atol=1e-4)


def test_a_series_of_one_value_or_none_has_finite_quantiles(model):
    series = np.stack([np.full(T, np.nan), np.full(T, 3.0)]).astype("float32")
    outputs = np.array(model(series))
    assert np.isfinite(outputs).all()
    assert np.abs(outputs[1] - 3).max() < 1e-2  # in units of 1e-5


def test_what_both_stacks_read_is_dropped_in_training():
    model = models.chronos_bolt(**SIZES, dropout=0.0)
    oracles.scramble(model)
    # Projections of zeros leave no effect to the dropout inside of them.
    for projection in (model.input_projection, model.head):
        projection.output_dense.set_weights([0 * w for w in projection.output_dense.get_weights()])
    np.testing.assert_array_equal(model(VALUES, training=True), model(VALUES))
    parts = {part: getattr(model, part) for part in model.parts}
    dropped = models.PatchForecaster(**{**parts, "dropout": 0.5})
    dropped.set_weights(model.get_weights())
    np.testing.assert_allclose(dropped(VALUES), model(VALUES), rtol=1e-6)
    assert np.abs(dropped(VALUES, training=True) - np.array(model(VALUES))).max() > 1e-3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"quantiles": (0.5, 1.0)}, "`quantiles` must be numbers between 0 and 1"),
        ({"prediction_length": 0}, "`prediction_length`"),
        ({"patch_length": 0}, "`patch_length`"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        models.chronos_bolt(**{**SIZES, **arguments})
