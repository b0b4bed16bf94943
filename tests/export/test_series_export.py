"""Signatures of models of series: forecasts, samples, classes, and models of one's own."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops

from keras_attn import export, generation, layers, models

T, C, H, N = 11, 2, 3, 5
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
PATCHES = {"patch_length": 5, "stride": 3, "norm": "layer_norm"}


def scrambled(model):
    oracles.scramble(model, seed=1, scale=0.3)
    return model


def patch_tst(**options):
    return scrambled(models.patch_tst(T, C, **{**SIZES, **PATCHES, **options}))


def chronos_bolt():
    return scrambled(
        models.chronos_bolt(**SIZES, context_length=32, prediction_length=H, patch_length=4)
    )


def chronos_t5():
    return scrambled(models.chronos_t5(**SIZES, prediction_length=H, num_samples=N))


def series(rows, times, *channels, seed=3):
    values = np.random.default_rng(seed).normal(size=(rows, times, *channels)).astype("float32")
    values[0, : times // 2] = values[-1, -1] = np.nan
    return values


def check(outputs, expected, atol=1e-5):
    for name, wanted in expected.items():
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(outputs[name], wanted, atol=atol)


@pytest.mark.parametrize(
    "values, message",
    [
        ([[1.0, np.inf]], "values must be finite, or NaN"),
        ([[-np.inf, np.nan]], "values must be finite, or NaN"),
        (np.zeros((2, 0)), "values must have one time at least"),
    ],
)
def test_infinite_values_and_empty_series_are_refused(values, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        export.signatures.model_functions.checked_series(tf.constant(values, tf.float32))


@pytest.mark.slow
def test_the_samples_of_a_row_are_those_of_its_seed():
    model, values = chronos_t5(), series(3, 13)
    functions = export.SeriesForecaster(model)
    outputs = functions.sample(values, [7, 8, 7])
    samples = outputs["samples"].numpy()
    assert samples.shape == (3, N, H)
    expected = np.quantile(samples, np.arange(1, 10) / 10, axis=1)  # (Q, B, H)
    check(outputs, {"quantiles": np.moveaxis(expected, 0, -1), "mean": samples.mean(axis=1)})
    check(functions.sample(values[1:2], [8]), {name: x[1:2] for name, x in outputs.items()})
    twice = functions.sample(values[[0, 0, 0]], [7, 8, 7])["samples"].numpy()
    np.testing.assert_array_equal(twice[0], twice[2])
    assert (twice[0] != twice[1]).any()
    assert set(functions.signatures) == {"forecast", "sample", "serving_default"}


@pytest.mark.slow
def test_a_served_forecast_is_that_of_python(tmp_path):
    model, values = chronos_bolt(), series(5, 41)
    directory = export.saved_model(model, tmp_path, horizon=H + 1)
    inspection = export.inspect(directory)
    assert not inspection.faults and inspection.outcomes["forecast"] == "same"
    assert inspection.series == {"context_length": 32, "horizon": H + 1}
    report = "\n".join(inspection.report())
    assert "the last 32 values are read" in report and f"{H + 1} values are forecast" in report
    loaded = tf.saved_model.load(directory)

    def served(values):
        return loaded.signatures["forecast"](values=tf.constant(values, tf.float32))

    outputs = served(values)
    check(outputs, generation.forecast(model, values, H + 1))
    np.testing.assert_allclose(outputs["levels"], np.tile(np.arange(1, 10) / 10, (5, 1)))
    check(served(values[:1, 20:]), {name: x[:1] for name, x in outputs.items()})
    nothing = np.full((1, 1), np.nan)
    check(served(nothing), generation.forecast(model, nothing, H + 1))


@pytest.mark.slow
def test_files_of_onnx_and_litert_give_the_forecast_of_python(tmp_path):
    model, values = patch_tst(prediction_length=H), series(3, 9, C)
    expected = generation.forecast(model, values, 4)
    path = export.onnx(model, tmp_path / "series.onnx", horizon=4)
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    check({"mean": session.run(["mean"], {"values": values})[0]}, expected)
    path = export.litert(model, tmp_path / "series.tflite", horizon=4)
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(path)
    check(interpreter.get_signature_runner("forecast")(values=values), expected)


@pytest.mark.slow
def test_a_classifier_of_series_gives_classes_of_any_length(tmp_path):
    model = patch_tst(num_classes=3)
    values = series(2, 7, C)
    directory = export.saved_model(model, tmp_path)
    assert export.inspect(directory).series == {"context_length": T, "horizon": None}
    classify = tf.saved_model.load(directory).signatures["classify"]
    filled = np.concatenate([np.full((2, T - 7, C), np.nan, "float32"), values], axis=1)
    expected = ops.softmax(model(filled))
    outputs = classify(values=tf.constant(values))
    check(outputs, {"probabilities": expected, "class": np.argmax(expected, axis=-1)})
    longer = np.concatenate([filled[:, :2], filled], axis=1)
    check(classify(values=tf.constant(longer)), outputs)


def own_model(head, length=None):
    values = keras.Input((length,), name="values")
    scaled, loc, scale = layers.SeriesScaler()(values)
    x = ops.nan_to_num(scaled, nan=0.0)
    features = ops.concatenate([loc, scale, ops.max(x, axis=1, keepdims=True)], axis=1)
    return keras.Model(values, head(features))


@pytest.mark.parametrize(
    "head, kind, outputs",
    [
        (keras.layers.Dense(3, activation="softmax"), "classify", {"probabilities", "class"}),
        (keras.layers.Dense(1), "regress", {"value"}),
        (keras.layers.Dense(5), "forecast", {"mean"}),
        (keras.layers.Reshape((3, 1)), "forecast", {"mean"}),
    ],
)
def test_the_output_of_ones_own_model_decides_about_its_signature(head, kind, outputs):
    model = own_model(head)
    functions = export.SeriesModel(model)
    assert set(functions.signatures) == {kind, "serving_default"}
    values = series(2, 7)
    result = functions.predict.python_function(tf.constant(values))
    assert set(result) == outputs
    first = result["probabilities" if kind == "classify" else min(outputs)]
    np.testing.assert_allclose(np.ravel(first), np.ravel(model(values)), atol=1e-6)


def test_a_model_that_reads_nan_as_a_number_is_refused():
    values = keras.Input((None,), name="values")
    model = keras.Model(values, keras.layers.Dense(3)(ops.mean(values, axis=1, keepdims=True)))
    with pytest.raises(ValueError, match="`model` must read NaN as a missing value"):
        export.SeriesModel(model)
    fills = keras.Model(values, ops.mean(ops.nan_to_num(values), axis=1, keepdims=True))
    with pytest.raises(ValueError, match="must not change the output"):
        export.SeriesModel(fills)


def test_a_horizon_is_refused_for_other_models(tmp_path):
    model = models.bert(13, **SIZES, max_length=7)
    for name in ("saved_model", "onnx", "litert"):
        with pytest.raises(ValueError, match="`horizon` must be None, but for a forecaster"):
            getattr(export, name)(model, tmp_path / "file", horizon=5)
    with pytest.raises(ValueError, match="`horizon` must be an integer of at least 1"):
        export.saved_model(patch_tst(prediction_length=H), tmp_path, horizon=0)
    with pytest.raises(ValueError, match="one of masked patches is for training alone"):
        export.saved_model(patch_tst(masking=0.4), tmp_path)
