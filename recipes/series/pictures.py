"""Pictures of forecasts with their bands."""

import numpy as np

from ..common.plots import save
from .scores import MEDIAN

MOST = 4


def draw_forecasts(path, table, windows, quantiles):
    """Draw the last forecast of some series: context, values, median and the 80 % band.

    Args:
        path: str.
        table: a `SeriesTable`.
        windows: `Windows` of the test.
        quantiles: (N, H, C, Q).
    """
    from matplotlib.figure import Figure

    picked = _last_windows(windows, quantiles.shape[2])
    figure = Figure(figsize=(8.4, 1.9 * len(picked)), layout="constrained")
    for axes, (index, channel) in zip(
        np.atleast_1d(figure.subplots(len(picked))), picked, strict=True
    ):
        series, first = windows.places[index]
        horizon, context = windows.horizon, min(windows.context, 4 * windows.horizon)
        start, one = max(0, first - context), table.series[series]
        end = first + horizon
        steps, ahead = np.arange(start, end), np.arange(first, end)
        forecast = quantiles[index, :, channel]
        axes.plot(steps, one.values[start:end, channel], color="0.3", lw=1, label="values")
        axes.plot(ahead, forecast[:, MEDIAN], color="tab:blue", lw=1.4, label="median")
        band = {"color": "tab:blue", "alpha": 0.25, "lw": 0, "label": "80 % band"}
        axes.fill_between(ahead, forecast[:, 0], forecast[:, -1], **band)
        axes.set_title(" ".join([one.name, table.columns[channel]]).strip(), fontsize=9)
        ticks = np.linspace(start, end - 1, 5).astype(int)
        axes.set_xticks(ticks, [table.grid.text(one.start + tick) for tick in ticks], fontsize=7)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=3)
    save(figure, path)


def _last_windows(windows, channels):
    """Return pairs of a window and a channel: the last window of some series, evenly picked."""
    last = {series: index for index, series in enumerate(windows.places[:, 0])}
    pairs = [(index, channel) for index in last.values() for channel in range(channels)]
    picked = np.unique(np.linspace(0, len(pairs) - 1, MOST).astype(int))
    return [pairs[i] for i in picked]
