"""Scale and patches of series: the formulas by loops, and missing values that change nothing."""

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.compat.keras_masks import get_keras_mask
from keras_attn.layers import SeriesPatches, SeriesPool, SeriesScaler

B, T, C = 3, 11, 2
NAN = float("nan")


def series(*shape, missing=0.3):
    values = oracles.random(*(shape or (B, T, C))) * 3 + 5
    gaps = np.random.default_rng(7).random(values.shape) < missing
    return np.where(gaps, NAN, values).astype("float32")


def scaled_by_loops(values, kind, epsilon):
    y, locs, scales = np.full(values.shape, NAN), [], []
    for row in range(len(values)):
        for channel in range(values.shape[2]):
            x = values[row, :, channel].astype("float64")
            seen = x[~np.isnan(x)]
            loc = seen.mean() if kind == "std" else 0.0
            scale = {
                "std": np.sqrt(((seen - loc) ** 2).mean() + epsilon),
                "mean": np.abs(seen).mean(),
                "none": 1.0,
            }[kind]
            y[row, :, channel] = (x - loc) / scale
            locs.append(loc)
            scales.append(scale)
    shape = len(values), 1, values.shape[2]
    return y, np.reshape(locs, shape), np.reshape(scales, shape)


@pytest.mark.parametrize("kind", ["std", "mean", "none"])
def test_observed_values_are_scaled_by_row_and_channel(kind):
    values, scaler = series(), SeriesScaler(kind, epsilon=0.01)
    outputs = scaler(values)
    for actual, expected in zip(outputs, scaled_by_loops(values, kind, 0.01), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaler.inverse(*outputs), values, rtol=1e-5)
    one_channel = scaler(values[..., 0])
    np.testing.assert_allclose(one_channel[0], outputs[0][..., 0], atol=1e-6)


def test_fixed_scales_are_those_given():
    values, scaler = series(), SeriesScaler("fixed", loc=[1, 2], scale=[3, 5])
    y, *rest = scaler(values)
    np.testing.assert_allclose(y, (values - [1, 2]) / [3, 5], rtol=1e-5)
    assert [x.shape for x in rest] == [(B, 1, C)] * 2
    assert SeriesScaler.from_config(scaler.get_config()).get_config() == scaler.get_config()
    for wrong in ({"loc": [1.0]}, {"kind": "fixed"}, {"kind": "fixed", "loc": [1], "scale": [0]}):
        with pytest.raises(ValueError, match="`(loc|scale)` must be"):
            SeriesScaler(**wrong)


def test_quantiles_return_to_the_scale_of_their_channel():
    loc, scale = np.array([[[1.0, 2.0]]]), np.array([[[10.0, 100.0]]])
    actual = SeriesScaler().inverse(np.ones((1, 3, 2, 5)), loc, scale)
    np.testing.assert_allclose(actual[0, 0], [[11.0] * 5, [102.0] * 5])


@pytest.mark.parametrize("epsilon, empty, constant", [(0.0, 1.0, 1e-5), (0.25, 0.5, 0.5)])
def test_series_without_values_and_constant_ones_have_a_finite_scale(epsilon, empty, constant):
    values = np.stack([np.full(T, NAN), np.full(T, 3.0), np.zeros(T)]).astype("float32")
    scaler = SeriesScaler(epsilon=epsilon, zero_scale=1e-5)
    y, loc, scale = scaler(values)
    np.testing.assert_allclose(loc[:, 0], [0, 3, 0])
    np.testing.assert_allclose(scale[:, 0], [empty, constant, constant], rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(values))
    np.testing.assert_allclose(SeriesScaler("mean")(values)[2][:, 0], [1, 3, 1e-10])


def test_padding_is_missing():
    values, mask = series(missing=0), np.arange(T) >= np.array([[0], [4], [T]])
    gaps = np.where(mask[..., None], values, NAN)
    for layer in (SeriesScaler(), SeriesPatches(3)):
        actual, expected = layer(values, mask=mask), layer(gaps)
        np.testing.assert_array_equal(*map(np.asarray, map(_first, (actual, expected))))


def _first(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


def test_large_values_do_not_overflow_under_mixed_float16():
    y, loc, scale = SeriesScaler(dtype="mixed_float16")(np.array([[1e6, 3e6]], "float32"))
    assert (keras.backend.standardize_dtype(y.dtype), y.shape) == ("float16", (1, 2))
    np.testing.assert_allclose([float(loc[0, 0]), float(scale[0, 0])], [2e6, 1e6])
    np.testing.assert_allclose(y, [[-1, 1]])


def patches_by_loops(values, width, stride, pad):
    if pad and len(values) % width:
        values = [NAN] * (width - len(values) % width) + [*values]
    count = (len(values) - width) // stride + 1
    start = len(values) - width - stride * (count - 1)
    return np.array([values[start + stride * i :][:width] for i in range(count)])


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("width, stride", [(3, 3), (5, 2), (4, 7), (T, T)])
def test_patches_are_those_of_loops(width, stride, pad):
    values = series()
    rows = [[patches_by_loops(x, width, stride, pad) for x in row.T] for row in values]
    expected = np.array(rows)  # (B, C, n, P)
    layer = SeriesPatches(width, stride, pad=pad, join_mask=True)
    actual = layer(values)
    assert layer.num_patches(T) == expected.shape[2]
    assert layer.compute_output_shape(values.shape) == actual.shape
    both = np.concatenate([np.nan_to_num(expected), ~np.isnan(expected)], axis=-1)
    np.testing.assert_array_equal(actual, both)
    one_channel = SeriesPatches(width, stride, pad=pad)(values[..., 1])
    np.testing.assert_array_equal(one_channel, both[:, 1, :, :width])


def test_patches_without_values_are_masked():
    values = np.array([[NAN] * 5 + [1.0, NAN], [NAN] * 7], "float32")
    layer = SeriesPatches(3, pad=True)
    mask = get_keras_mask(layer(values))
    np.testing.assert_array_equal(mask, [[False, False, True], [False, False, False]])


def test_short_series_need_pad():
    with pytest.raises(ValueError, match="at least patch_length=5 values.* a series of 3"):
        SeriesPatches(5)(np.zeros((2, 3), "float32"))
    assert SeriesPatches(5, pad=True)(np.zeros((2, 3), "float32")).shape == (2, 1, 5)


def test_flattened_patches_need_a_known_number():
    patches = keras.Input((None, 7))
    assert SeriesPool("mean", 3)(patches).shape == (None, 21)
    with pytest.raises(ValueError, match='of a known n for "flatten". Received: x_shape'):
        SeriesPool("flatten", 3)(patches)


def test_series_of_any_length_in_one_graph():
    inputs = keras.Input((None, C))
    scaled, *_ = SeriesScaler()(inputs)
    model = keras.Model(inputs, SeriesPatches(5, 2, pad=True)(scaled))
    assert model.output.shape == (None, C, None, 5)
    for length in (1, 5, T):
        values = series(B, length, C)
        expected = SeriesPatches(5, 2, pad=True)(SeriesScaler()(values)[0])
        np.testing.assert_allclose(model.predict(values, verbose=0), expected, rtol=1e-5)


def test_missing_values_have_no_gradient():
    tf = pytest.importorskip("tensorflow")
    values = tf.constant(series(), "float32")
    with tf.GradientTape() as tape:
        tape.watch(values)
        scaled, loc, scale = SeriesScaler(epsilon=0.0)(values)
        total = ops.sum(SeriesPatches(3)(scaled) ** 2) + ops.sum(loc * scale)
    gradient = tape.gradient(total, values).numpy()
    assert np.isfinite(gradient).all() and not gradient[np.isnan(values)].any()
    constant = tf.zeros((2, 3))
    with tf.GradientTape() as tape:
        tape.watch(constant)
        total = ops.sum(SeriesScaler(epsilon=0.0)(constant)[2])
    assert np.isfinite(tape.gradient(total, constant)).all()
