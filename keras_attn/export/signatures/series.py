"""Signatures of models of series: from numbers to forecasts, classes or features."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_attn.export.golden_outputs import outputs_match
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    checked_series,
    series_spec,
)
from keras_attn.export.signatures.model_reader import reads_series
from keras_attn.export.signatures.text_model import ModelOutput
from keras_attn.generation.forecasting import FORECASTERS, forecast, levels_of, read_context
from keras_attn.models import Forecaster, TokenForecaster
from keras_attn.ops.checks import check_sizes, check_that


class SeriesForecaster(ModelFunctions):
    """Forecaster as graph functions, from the values of series to their next values.

        values -> quantiles, mean,   values, seed -> samples

    Of a longer series the last part is read, a shorter one is filled in front with NaN, which is a
    missing value anywhere. Infinite values are an error.

    Args:
        model: a `Forecaster`, a `PatchForecaster` or a `TokenForecaster`.
        horizon: int. Number of values to forecast, by default the model's `prediction_length`;
            beyond it by the rule of `generation.forecast`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.chronos_bolt(num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, prediction_length=4)
        >>> forecaster = keras_attn.export.SeriesForecaster(model, horizon=7)
        >>> forecaster.forecast([[2.0, float("nan"), 3.0]])["quantiles"].shape
        TensorShape([1, 7, 9])

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), section 3.
    """

    kind = "forecast"
    has_horizon = True

    @classmethod
    def fits(cls, model, options):
        return isinstance(model, FORECASTERS) and model.prediction_length is not None

    @classmethod
    def from_options(cls, model, options):
        options.check_no_text("A forecaster")
        return cls(model, options.horizon)

    def __init__(self, model, horizon=None):
        super().__init__(model)
        horizon = model.prediction_length if horizon is None else horizon
        check_sizes(horizon=horizon)
        self.series = {"context_length": model.context_length, "horizon": horizon}
        levels, spec = levels_of(model), series_spec(model)
        is_drawn = isinstance(model, TokenForecaster)

        def run(values, noise=None):
            outputs = forecast(model, checked_series(values), horizon, noise=noise)
            if levels is not None:
                rows = tf.shape(values)[0]
                outputs["levels"] = tf.tile(tf.constant([levels], tf.float32), [rows, 1])
            return outputs

        def sample(values, seed):
            """Return `samples` [B, N, H] by a `seed` [B] for each row, and their quantiles."""
            shape = model.num_samples, horizon
            # Each row has noise of its own, so that it has the samples that it has alone.
            noise = tf.map_fn(
                lambda each: tf.random.stateless_uniform(shape, [each, 0]),
                seed,
                fn_output_signature=tf.TensorSpec(shape, tf.float32),
            )
            return run(values, noise)

        def forecast_values(values):
            """Return `quantiles` [B, H, ..., Q], their `levels` [B, Q], and `mean` [B, H, ...]."""
            if not is_drawn:
                return run(values)
            outputs = sample(values, tf.zeros(tf.shape(values)[:1], tf.int32))
            return {name: x for name, x in outputs.items() if name != "samples"}

        def forecast_by_noise(values, noise):
            """Return the outputs of `sample`, drawn by `noise` [B, N, H]."""
            return run(values, noise)

        self.forecast = tf.function(forecast_values, [spec], autograph=False)
        self.sample = self.by_noise = None
        if is_drawn:
            seed = tf.TensorSpec([None], tf.int32, "seed")
            noise = tf.TensorSpec([None, model.num_samples, horizon], tf.float32, "noise")
            self.sample = tf.function(sample, [spec, seed], autograph=False)
            self.by_noise = tf.function(forecast_by_noise, [spec, noise], autograph=False)

    @property
    def signatures(self):
        own = {"forecast": self.forecast, "serving_default": self.forecast}
        return own if self.sample is None else {**own, "sample": self.sample}


class SeriesModel(ModelFunctions):
    """Keras model of one's own that reads series, as a graph function.

        (B, K) with a softmax: "classify"      (B,) or (B, 1): "regress"      otherwise: "forecast"

    A longer series than the model's length loses its start, a shorter one gets NaN in front, so the
    model must read NaN as a missing value. One that reads any length must give a series the same
    outputs with NaN in front and without.

    Args:
        model: a functional `keras.Model` or a `keras.Sequential` with one output and one input of
            floats, named "values": (B, T), or (B, T, C) of several channels.
        kind: "classify", "regress", "embed" or "forecast", in place of what the output says.
        from_logits: bool. As of `TextModel`.

    Raises:
        ValueError: if an argument does not fit the output, or NaN in front changes it or makes it
            infinite or NaN.

    Example:
        >>> import keras, keras_attn
        >>> values = keras.Input((None,), name="values")
        >>> scaled, loc, scale = keras_attn.layers.SeriesScaler()(values)
        >>> model = keras.Model(values, keras.ops.tile(loc, (1, 3)))
        >>> export = keras_attn.export.SeriesModel(model)
        >>> export.signatures["forecast"]([[2.0, float("nan"), 4.0]])["mean"].numpy().tolist()
        [[3.0, 3.0, 3.0]]

    Reference: [Oreshkin et al., 2020](https://arxiv.org/abs/1905.10437), section 2, for forecasts.
    """

    @classmethod
    def fits(cls, model, options):
        return reads_series(model) or isinstance(model, Forecaster)

    @classmethod
    def from_options(cls, model, options):
        options.check_no_text("A model of series")
        kind = options.kind
        if isinstance(model, Forecaster):
            shape = model.outputs[0].shape
            wanted = "of forecasts, values or classes; one of masked patches is for training alone"
            check_that(len(shape) == 2, wanted, model=model)
            kind = "regress" if shape[1] == 1 else "embed"
        return cls(model, kind, options.from_logits)

    def __init__(self, model, kind=None, from_logits=None):
        super().__init__(model)
        shape = model.inputs[0].shape
        self.series = {"context_length": shape[1], "horizon": None}
        check_that(len(model.outputs) == 1, "a model of one output", model=model)

        def call(values):
            (x,) = keras.tree.flatten(model(read_context(values, shape)))
            return tf.cast(x, tf.float32)

        example = _checked_example(call, shape)
        is_forecast = kind == "forecast" or kind is None and example.ndim > 2
        if not is_forecast:
            output = ModelOutput(model, None, example, None, kind, from_logits)
            is_forecast = kind is None and output.kind == "embed"
        self.kind = "forecast" if is_forecast else output.kind

        def predict(values):
            """Return the outputs of the kind: `mean`, `probabilities` and `class`, or `value`."""
            outputs = call(checked_series(values))
            if is_forecast:
                return {"mean": outputs}
            are_all = tf.ones((tf.shape(outputs)[0], 1), tf.bool)
            return output.by_name(output.probabilities_or_values(outputs, are_all))

        self.predict = tf.function(predict, [series_spec(model)], autograph=False)

    @property
    def signatures(self):
        return {self.kind: self.predict, "serving_default": self.predict}


def _checked_example(call, shape):
    """Return the outputs of two series, and check that a model reads NaN as a missing value.

    NaN in front must leave them finite, and must not change those of a model of any length.
    """
    length = 5 if shape[1] is None else shape[1]
    series = np.cos(np.arange(2 * length * math.prod(shape[2:]))).reshape(2, length, *shape[2:])
    padded = np.concatenate([np.full_like(series[:, :3], np.nan), series], axis=1).astype("float32")
    padded = padded if shape[1] is None else padded[:, :length]
    outputs = call(tf.constant(padded)).numpy()
    alone = outputs if shape[1] else call(tf.constant(series, tf.float32)).numpy()
    if not (np.isfinite(outputs).all() and outputs_match(alone, outputs, 1e-4)):
        raise ValueError(
            "`model` must read NaN as a missing value, also in front of a series, where it must "
            "not change the output: begin with a `layers.SeriesScaler` and `layers.SeriesPatches`. "
            "Received: a model whose output for a series with NaN in front is NaN or another."
        )
    return outputs
