"""Forecasts of series of any length, for any number of times."""

import numpy as np
from keras import ops

from keras_attn.generation.sampled_paths import sample_paths
from keras_attn.models import Forecaster, PatchForecaster, TokenForecaster
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.shapes import size

# The classes of models that `forecast` takes.
FORECASTERS = Forecaster, PatchForecaster, TokenForecaster
# Levels of the quantiles of drawn paths.
LEVELS = tuple(k / 10 for k in range(1, 10))


def forecast(model, values, horizon=None, *, num_samples=None, seed=None, noise=None):
    """Forecast the next values of series, also beyond the model's own horizon.

        y_1 .. y_h = model(x),   y_{h+1} .. y_{2h} = quantiles over i of model([x; y_1^i .. y_h^i])

    The last `context_length` values are read. A longer forecast appends each of the Q quantiles to
    the series; the quantiles of the Q^2 quantiles that follow are the next ones. Points are
    appended as they are. A `TokenForecaster` draws paths, and appends their median. Cost: that of
    the model, and Q times as much for every further `prediction_length` values.

    Use it for forecasts of series of any length, with gaps, as far ahead as needed.

    Args:
        model: a `Forecaster`, a `PatchForecaster` or a `TokenForecaster`.
        values: float (B, T), or (B, T, C) of several channels, NaN where a value is missing; or a
            list of series of several lengths.
        horizon: int. Number of values to forecast, by default the model's `prediction_length`.
        num_samples, seed, noise: of a `TokenForecaster`, as of `sample_paths`.

    Returns:
        A dict of `mean` (B, horizon), or (B, horizon, C): the median where the model gives
        quantiles, and the mean of its distribution where it gives one. With quantiles also
        `quantiles` (B, horizon, Q), or (B, horizon, C, Q), of the levels `levels_of(model)`. Of a
        `TokenForecaster` also `samples` (B, N, horizon).

    Raises:
        ValueError: if `model` forecasts nothing, `horizon` < 1, or `values` are infinite or of
            another shape.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.chronos_bolt(num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, prediction_length=4)
        >>> forecast = keras_attn.generation.forecast(model, [[2.0, np.nan, 3.0], [5.0]], 7)
        >>> forecast["quantiles"].shape
        TensorShape([2, 7, 9])

    Differs from the paper: none.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), section 3.3; the rule of
        quantiles is that of chronos-forecasting.
    """
    wanted = f"a {', '.join(f'`{each.__name__}`' for each in FORECASTERS)}"
    check_that(isinstance(model, FORECASTERS), wanted, model=model)
    wanted = "a model of the next values, with a `prediction_length`"
    check_that(model.prediction_length is not None, wanted, model=model)
    horizon = model.prediction_length if horizon is None else horizon
    check_sizes(horizon=horizon)
    values = _read_series(values)
    if isinstance(model, TokenForecaster):
        samples = sample_paths(model, values, horizon, num_samples, seed=seed, noise=noise)
        quantiles = ops.moveaxis(quantiles_over(samples, LEVELS), 1, -1)
        return {"quantiles": quantiles, "mean": ops.mean(samples, axis=1), "samples": samples}
    shape = model.inputs[0].shape
    if tuple(values.shape[2:]) != tuple(shape[2:]):
        wanted = ", ".join(["batch", "length", *map(str, shape[2:])])
        _refuse(f"of shape ({wanted}), as the model reads", values)
    context = read_context(values, shape, model.context_length)
    levels = levels_of(model) or (0.5,)
    parts = [_rows_by_level(model, context)]  # (B, Q, H, C)
    context = ops.repeat(ops.expand_dims(context, 1), len(levels), axis=1)
    while len(parts) * model.prediction_length < horizon:
        context = ops.concatenate([context, parts[-1]], axis=2)[:, :, -model.context_length :]
        rows = ops.reshape(context, (-1, size(context, 2), *context.shape[3:]))
        paths = _rows_by_level(model, rows)  # (B Q, Q, H, C)
        paths = ops.reshape(paths, (-1, len(levels) ** 2, *paths.shape[2:]))
        parts.append(quantiles_over(paths, levels))
    whole = ops.concatenate(parts, axis=2)[:, :, :horizon]
    middle = _at_ranks(whole, np.interp([0.5], levels, np.arange(len(levels))))[:, 0]
    if levels_of(model) is None:
        return {"mean": middle}
    return {"quantiles": ops.moveaxis(whole, 1, -1), "mean": middle}


def levels_of(model):
    """Return the levels of the quantiles of `forecast`, a tuple; None for a model of points."""
    return LEVELS if isinstance(model, TokenForecaster) else model.quantiles


def read_context(values, shape, context_length=None):
    """Return what a model with an input of a shape reads of series (B, T, ...): their last part.

    A model of one length gets shorter series with missing values in front.
    """
    if shape[1] is None:
        return values if context_length is None else values[:, -context_length:]
    blank = ops.full((ops.shape(values)[0], *shape[1:]), float("nan"))
    whole = ops.concatenate([blank, values], axis=1)
    return ops.reshape(whole[:, -shape[1] :], (-1, *shape[1:]))


def quantiles_over(x, levels):
    """Return the quantiles over axis 1 of x (B, N, ...), between two numbers by a straight line."""
    ranks = np.array(levels, "float32") * np.float32(x.shape[1] - 1)
    return _at_ranks(ops.sort(x, axis=1), ranks)


def _at_ranks(x, ranks):
    """Return x (B, N, ...) at positions of axis 1 that may lie between two of its own."""
    low = np.floor(ranks).astype("int32")
    weights = (ranks - low).astype("float32").reshape(-1, *[1] * (len(x.shape) - 2))
    below, above = (ops.take(x, np.minimum(i, x.shape[1] - 1), axis=1) for i in (low, low + 1))
    return below + weights * (above - below)


def _read_series(values):
    """Return series as a tensor (B, T, ...); those of a list get missing values in front."""
    shaped = "of shape (batch, length) or (batch, length, channels), with a value at least"
    if not ops.is_tensor(values):
        if isinstance(values, (list, tuple)):
            rows = [_as_array(row) for row in values]
            if not all(row.ndim for row in rows) or len({row.shape[1:] for row in rows}) > 1:
                shapes = [row.shape for row in rows]
                raise ValueError(f"`values` must be {shaped}. Received: series of {shapes=}.")
            longest = max(map(len, rows), default=0)
            values = [_fill_front(row, longest) for row in rows]
        values = _as_array(values)
        infinite = np.argwhere(np.isinf(values))
        if len(infinite):
            position = tuple(map(int, infinite[0]))
            raise ValueError(
                "`values` must be finite numbers, or NaN where one is missing. "
                f"Received: {values[position]} at {position}."
            )
    if len(values.shape) not in (2, 3) or values.shape[1] == 0:
        _refuse(shaped, values)
    return ops.cast(values, "float32")


def _as_array(values):
    try:
        return np.asarray(values, "float32")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`values` must be numbers of one shape, NaN where one is missing. Received: {error}"
        ) from None


def _refuse(wanted, values):
    # A repeated array would be a page of numbers.
    shape = tuple(values.shape)
    raise ValueError(f"`values` must be {wanted}. Received: values of shape {shape}.")


def _fill_front(row, length):
    """Return an array of `length` times, with NaN in front."""
    front = (length - len(row), 0)
    return np.pad(row, [front, *[(0, 0)] * (row.ndim - 1)], constant_values=np.nan)


def _rows_by_level(model, context):
    """Return the forecast of a context as (B, Q, H, ...); Q is 1 for a model of points."""
    predicted = model(context)
    if model.distribution is not None:
        predicted = _MEANS[model.distribution](predicted)
    if model.quantiles is None:
        return ops.expand_dims(predicted, 1)
    return ops.moveaxis(predicted, -1, 1)


# Mean of a distribution, by its parameters (..., K).
_MEANS = {
    "student_t": lambda x: x[..., 1],
    "normal": lambda x: x[..., 0],
    "negative_binomial": lambda x: x[..., 0] * ops.exp(x[..., 1]),
}
