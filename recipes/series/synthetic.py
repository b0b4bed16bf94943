"""Series made by the recipe: a season, a trend, noise and gaps; and kinds of waves as classes."""

import numpy as np

from .tables import Series, SeriesTable
from .times import Grid

HOUR = 3600 * 10**6  # microseconds
START = 1_700_000_000 * 10**6 // (24 * HOUR) * 24 * HOUR  # a midnight
WAVES = ("sine", "square", "sawtooth", "triangle")


def seasonal_series(seed, number=6, days=60):
    """Return a `SeriesTable` of hourly values, whose season is a day.

    A series is a level, a trend that changes once, a day of two waves whose size changes from day
    to day, and noise that follows itself. A twentieth of the values is missing, in gaps.
    """
    rng = np.random.default_rng(seed)
    length = 24 * days
    hours, series = np.arange(length), []
    for index in range(number):
        turn = rng.integers(length // 4, 3 * length // 4)
        slopes = rng.normal(0, 3.0, 2) / length
        trend = slopes[0] * hours + slopes[1] * np.maximum(hours - turn, 0)
        phases, sizes = rng.uniform(0, 2 * np.pi, 2), np.array([1.0, rng.uniform(0.2, 0.6)])
        waves = np.sin(2 * np.pi * hours[:, None] * [1, 2] / 24 + phases) @ sizes
        by_day = np.repeat(rng.lognormal(0, 0.2, days), 24)
        values = 10 + trend + waves * by_day + _noise(rng, length)
        values = np.where(_gaps(rng, length), np.nan, rng.uniform(1, 50) * values)
        series.append(Series(f"series {index + 1}", 0, values[:, None].astype("float32")))
    return SeriesTable(series, Grid("microsecond", START, HOUR), ["value"])


def waves_in_noise(seed, number=400, length=64):
    """Return a `SeriesTable` of waves of a random phase and period, labelled by their form."""
    rng = np.random.default_rng(seed)
    series = []
    for index in range(number):
        label = WAVES[index % len(WAVES)]
        turns = rng.uniform(0, 1) + np.arange(length) / rng.uniform(14, 26)
        values = rng.lognormal(0, 0.5) * (_wave(label, turns) + rng.normal(0, 0.25, length))
        values = np.where(_gaps(rng, length, 4), np.nan, values)
        series.append(Series(str(index), 0, values[:, None].astype("float32"), label))
    return SeriesTable(series, Grid("number", 0, 1), ["value"])


def _wave(kind, turns):
    place = turns % 1
    if kind == "sine":
        return np.sin(2 * np.pi * place)
    if kind == "square":
        return np.where(place < 0.5, 1.0, -1.0)
    return 2 * place - 1 if kind == "sawtooth" else 4 * np.abs(place - 0.5) - 1


def _noise(rng, length):
    """Return noise of which half a value stays in the next."""
    noise = rng.normal(0, 0.25, length)
    for t in range(1, length):
        noise[t] += 0.5 * noise[t - 1]
    return noise


def _gaps(rng, length, longest=12):
    """Return True at a twentieth of the steps, in gaps of 1 to `longest`."""
    missing = np.zeros(length, bool)
    while missing.mean() < 0.05:
        start = rng.integers(length)
        missing[start : start + rng.integers(1, longest + 1)] = True
    return missing
