from pathlib import Path

import numpy as np
import pytest

from keras_attn.layers import SeriesBins

GOLDEN = Path(__file__).parents[1] / "convert/golden_series/bins.npz"


@pytest.fixture(params=[0, 1])
def golden(request):
    """Return bins, and what chronos-forecasting computes with them."""
    with np.load(GOLDEN) as file:
        arrays = {k[:-2]: v for k, v in file.items() if k.endswith(f"_{request.param}")}
        low, high, num_tokens, num_special = file["bins"][request.param]
    return SeriesBins(int(num_tokens), low, high, int(num_special)), arrays


def test_values_at_bounds_and_beside_them_have_the_ids_of_the_original(golden):
    bins, arrays = golden
    ids = bins.encode(arrays["scaled"], np.ones(4, "float32"))
    np.testing.assert_array_equal(ids[:, :-1], arrays["scaled_ids"])


def test_series_with_missing_values_have_the_ids_of_the_original(golden):
    bins, arrays = golden
    ids, scale = bins(arrays["series"])
    np.testing.assert_array_equal(ids, arrays["ids"])
    np.testing.assert_allclose(scale, arrays["scale"], rtol=2e-7)
    np.testing.assert_array_equal(np.array(ids)[:, :-1] == 0, np.isnan(arrays["series"]))


def test_ids_have_the_values_of_the_original(golden):
    bins, arrays = golden
    values = bins.decode(arrays["paths"], arrays["scale"])
    np.testing.assert_array_equal(values, arrays["values"])


def test_a_value_comes_back_within_half_a_bin():
    bins = SeriesBins(103, -4, 4, append_end=False)
    values = np.random.default_rng(0).normal(size=(3, 17)).astype("float32")
    ids, scale = bins(values)
    assert ids.shape == bins.compute_output_shape((3, 17))[0] == (3, 17)
    back = bins.decode(ids, scale)
    half = 8 / 99 / 2 * np.array(scale)[:, None]
    assert (np.abs(np.array(back) - values) <= half * 1.001).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_tokens": 4}, "`num_tokens`.*at least 5"),
        ({"low": 2, "high": 2}, "`high` must be above low=2"),
        ({"pad_id": 2}, "`pad_id` must be below num_special=2"),
        ({"end_id": 0}, "`end_id`.*another id than that of padding"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        SeriesBins(**arguments)
