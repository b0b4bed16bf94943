"""Windows of series: a context, and the values after it that a model forecasts, split by time."""

from typing import NamedTuple

import numpy as np

from keras_attn import metrics

from ..common.files import SPLITS


class Windows:
    """Contexts and the values that follow them, in the order of series and time.

    `recipes.image.batches` reads it as it reads images.

    Args:
        series: list of float32 arrays (T, C).
        places: int array (N, 2), the index of a series and the step of its first target.
        context: int. Steps of a context; those before a series are missing, NaN.
        horizon: int. Steps of the targets.
        scales: float64 (S, C), the error of the seasonal naive forecast of each series in training;
            NaN where it has none.
    """

    def __init__(self, series, places, context, horizon, scales):
        empty = np.full((context, series[0].shape[1]), np.nan, "float32")
        self._series = [np.concatenate([empty, values]) for values in series]
        self.places, self.context, self.horizon = places, context, horizon
        # Of a series without a training part: those of the others.
        others = np.nanmean(np.where(np.isfinite(scales), scales, np.nan), axis=0)
        scales = np.where(np.isfinite(scales), scales, others)
        self._units = np.where(np.isfinite(scales), scales, 1.0)

    def __len__(self):
        return len(self.places)

    def take(self, indices):
        """Return the contexts, float32 (B, T, C)."""
        return self._cut(indices, 0, self.context)

    def take_labels(self, indices):
        """Return the values after them, float32 (B, H, C), and units of their errors, (B, C)."""
        return self._cut(indices, self.context, self.horizon), self.units(indices)

    def units(self, indices):
        """Return the units in which the errors of windows are counted, float64 (B, C)."""
        return self._units[self.places[np.asarray(indices), 0]]

    def all(self):
        """Return all contexts, targets and units."""
        indices = range(len(self))
        return self.take(indices), *self.take_labels(indices)

    def _cut(self, indices, offset, length):
        # Step t of a series is at t + context of its padded array.
        places = self.places[np.asarray(indices)]
        return np.stack([self._series[n][t + offset :][:length] for n, t in places])


class Parts(NamedTuple):
    """The split of all series by time.

    Attributes:
        windows: dict of `Windows` by split.
        borders: the steps of the table's grid at which `valid`, `test` and the time after the data
            begin.
        scales: float64 (S, C), the mean absolute error of the seasonal naive forecast within the
            training part of each series; NaN where it has none.
    """

    windows: dict
    borders: tuple
    scales: np.ndarray


def split_by_time(table, context, horizon, season, valid_share, test_share, most_held_out):
    """Split the windows of a `SeriesTable` by the time of their targets.

    All series are cut at the same times. The targets of a window are within one part; its context
    may begin in an earlier one. A window has values in its context and in its targets.

    Args:
        context, horizon, season: ints, in steps.
        valid_share, test_share: floats. Shares of the time for the parts; at least a horizon.
        most_held_out: int. Most windows of a part that is not trained on, evenly spaced.

    Returns:
        `Parts`.

    Raises:
        ValueError: if a part has no window.
    """
    first = min(one.start for one in table.series)
    end = max(one.start + len(one.values) for one in table.series)
    lengths = [max(horizon, round(share * (end - first))) for share in (valid_share, test_share)]
    borders = first, end - sum(lengths), end - lengths[1], end
    series = [one.values for one in table.series]
    stops = [max(0, borders[1] - one.start) for one in table.series]
    scales = np.stack(
        [naive_error(values[:stop], season) for values, stop in zip(series, stops, strict=True)]
    )
    windows = {}
    for split, begin, stop in zip(SPLITS, borders, borders[1:]):
        places = [
            (index, t)
            for index, one in enumerate(table.series)
            for t in _first_targets(one, begin, stop, context, horizon)
        ]
        if not places:
            raise ValueError(
                f"The {split} part must have a value with {horizon} steps of --horizon after it. "
                f"Received: {max(0, stop - begin)} steps for it, of {end - first} in all."
            )
        if split != "train" and len(places) > most_held_out:
            places = [places[i] for i in np.linspace(0, len(places) - 1, most_held_out, dtype=int)]
        windows[split] = Windows(series, np.array(places), context, horizon, scales)
    return Parts(windows, borders[1:], scales)


def _first_targets(one, begin, stop, context, horizon):
    """Yield the steps of a series at which the targets of a part can begin."""
    observed = np.isfinite(one.values).any(axis=1)
    before = np.concatenate([[0], np.cumsum(observed)])
    last = min(stop - one.start, len(one.values)) - horizon
    for t in range(max(1, begin - one.start), last + 1):
        has_context = before[t] > before[max(0, t - context)]
        if has_context and before[t + horizon] > before[t]:
            yield t


def naive_error(values, season):
    """Return the mean absolute error of the seasonal naive forecast, float64 (C,).

    NaN where no two values are a season apart, or all are equal.
    """
    return np.array([_naive_error(channel, season) for channel in values.T])


def _naive_error(values, season):
    try:
        return metrics.seasonal_naive_error(values, season) or np.nan
    except ValueError:
        return np.nan
