"""Forecasts that any model must beat: the last value, the season before, ridge on lags."""

import numpy as np

# Candidates for the penalty of the ridge, over the number of its rows.
PENALTIES = tuple(10.0**n for n in range(-4, 3))


def last_value(contexts, horizon):
    """Return the last value of each context for each step, (N, H, C); 0 if there is none."""
    return seasonal_naive(contexts, horizon, 1)


def seasonal_naive(contexts, horizon, season):
    """Return the values one season before, (N, H, C).

    Where that value is missing, or not in the context, it is that of an earlier season, then the
    last value; 0 if there is none.

    Args:
        contexts: (N, T, C), NaN where a value is missing.
        horizon, season: ints.
    """
    length = contexts.shape[1]
    steps = np.arange(horizon) % season  # later seasons of a horizon repeat the first
    forecasts = np.full((len(contexts), horizon, contexts.shape[2]), np.nan)
    for start in range(length - season, -season, -season):
        inside = start + steps >= 0
        values = contexts[:, np.maximum(start + steps, 0)]
        use = np.isnan(forecasts) & inside[None, :, None]
        forecasts = np.where(use, values, forecasts)
    return np.where(np.isnan(forecasts), _last(contexts)[:, None], forecasts)


def _last(contexts):
    """Return the last value of each context that is observed, (N, C)."""
    observed = np.isfinite(contexts)
    last = contexts.shape[1] - 1 - observed[:, ::-1].argmax(axis=1)
    values = np.take_along_axis(contexts, last[:, None], axis=1)[:, 0]
    return np.where(observed.any(axis=1), values, 0.0)


class Ridge:
    """Linear map of the values of a context to each step after it, the same for all channels.

        y = loc + scale ((x - loc) / scale) W

    loc and scale are mean and deviation of a context; missing values are 0 once scaled. The
    penalty is the best of `PENALTIES` on the validation windows.

    Args:
        train, valid: `Windows`.
        most_rows: int. Most rows to fit, evenly spaced.
    """

    def __init__(self, train, valid, most_rows=20_000):
        indices = np.linspace(0, len(train) - 1, min(len(train), most_rows), dtype=int)
        x, y, _, _ = _rows(train.take(indices), train.take_labels(indices)[0])
        observed = np.isfinite(y).all(axis=1)
        x, y = x[observed], y[observed]
        contexts, held_out, units = valid.all()
        products, targets = x.T @ x, x.T @ y
        best = np.inf
        for penalty in PENALTIES:
            added = penalty * max(1, len(x)) * np.eye(x.shape[1])
            weights = np.linalg.solve(products + added, targets)
            errors = np.abs(self._apply(weights, contexts) - held_out)
            error = np.nanmean(errors / units[:, None])
            if error < best:
                best, self.weights, self.penalty = error, weights, penalty

    def forecast(self, contexts):
        """Return forecasts (N, H, C)."""
        return self._apply(self.weights, contexts)

    @staticmethod
    def _apply(weights, contexts):
        x, _, loc, scale = _rows(contexts)
        forecasts = loc + scale * (x @ weights)
        rows, _, channels = contexts.shape
        return forecasts.reshape(rows, channels, -1).transpose(0, 2, 1)


def _rows(contexts, targets=None):
    """Return scaled contexts (N C, T) and targets (N C, H), a row a channel, and loc and scale."""
    rows = contexts.transpose(0, 2, 1).reshape(-1, contexts.shape[1]).astype("float64")
    loc, scale = location(rows)
    x = np.nan_to_num((rows - loc) / scale)
    if targets is None:
        return x, None, loc, scale
    y = targets.transpose(0, 2, 1).reshape(-1, targets.shape[1])
    return x, (y - loc) / scale, loc, scale


def location(rows):
    """Return mean and deviation (N, 1) of what is observed in rows (N, T): 0 and 1 of nothing."""
    observed = np.isfinite(rows)
    counts = np.maximum(observed.sum(axis=1, keepdims=True), 1)
    loc = np.nansum(rows, axis=1, keepdims=True) / counts
    deviation = np.sqrt(np.nansum((rows - loc) ** 2, axis=1, keepdims=True) / counts)
    return loc, np.where(deviation > 0, deviation, 1.0)


def with_bands(points, units, errors, levels):
    """Return quantiles (N, H, C, Q): forecasts plus quantiles of the errors of others.

    Errors are pooled over the windows and channels of each step.

    Args:
        points: forecasts (N, H, C).
        units: (N, C), in which errors are counted.
        errors: (M, H, C), of the validation, in its units.
        levels: tuple of Q floats.
    """
    errors = errors.transpose(1, 0, 2).reshape(errors.shape[1], -1)
    bands = np.nanquantile(errors, levels, axis=1).T  # (H, Q)
    return points[..., None] + bands[None, :, None] * units[:, None, :, None]


def ridge_classes(values, labels, test_values, penalty=1.0):
    """Return the classes (M,) of series by the largest output of a ridge regression of classes.

    Values are scaled by mean and deviation of each step and channel in training; missing ones are
    0. Few series have more values than rows, so the ridge is solved by their products.

    Args:
        values, test_values: (N, T, C) and (M, T, C).
        labels: int (N,).
        penalty: float, in mean squares of a row.
    """
    rows, test_rows = (x.reshape(len(x), -1).astype("float64") for x in (values, test_values))
    loc, scale = (x.T for x in location(rows.T))
    rows, test_rows = (np.nan_to_num((x - loc) / scale) for x in (rows, test_rows))
    products = rows @ rows.T
    targets = np.eye(labels.max() + 1)[labels]
    mean = targets.mean(axis=0)
    added = penalty * np.trace(products) / len(rows) * np.eye(len(rows))
    weights = np.linalg.solve(products + added, targets - mean)
    return (test_rows @ rows.T @ weights + mean).argmax(axis=1)
