"""Times of a table as numbers of equal steps: years, quarters, months, dates and seconds."""

import datetime
import math
import re
from typing import NamedTuple

import numpy as np

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_QUARTER = re.compile(r"(\d{4})[ -]?[Qq]([1-4])")
_YEAR_MONTH = re.compile(r"(\d{4})[-/ ](\d{1,2})")
_YEAR_NAME = re.compile(r"(\d{4})[-/ ]([A-Za-z]{3,9})")
_NAME_YEAR = re.compile(r"([A-Za-z]{3,9})[-/ ](\d{4})")
_DAY, _SECOND = 86400 * 10**6, 10**6  # microseconds
# Steps of a season, by the step in microseconds: of a day, or of a week of days.
_SEASONS = {_DAY: 7, 7 * _DAY: 52}
# Largest distance from a whole number of steps, in steps: decimal years are rounded.
_TOLERANCE = 0.2


class Grid(NamedTuple):
    """Steps of equal length between the times of a table.

    Attributes:
        unit: "number", "month" or "microsecond", of times as numbers.
        origin: float. The first time.
        step: float. Length of a step.
    """

    unit: str
    origin: float
    step: float

    def season(self):
        """Return the steps of a season that calendars suggest: a year, a week or a day; 1 if none.

        Quarters and months have years, days weeks, and shorter steps that divide a day days.
        """
        if self.unit == "month":
            return max(1, round(12 / self.step))
        if self.unit != "microsecond":
            return 1
        if self.step < _DAY:
            return round(_DAY / self.step) if _DAY % self.step == 0 else 1
        return _SEASONS.get(self.step, 1)

    def text(self, index):
        """Return a time as it is written in pictures."""
        time = self.origin + index * self.step
        if self.unit == "month":
            return f"{int(time) // 12}-{int(time) % 12 + 1:02}"
        if self.unit == "number":
            return f"{time:g}"
        moment = _EPOCH + datetime.timedelta(microseconds=int(time))
        return moment.isoformat(sep=" ").removesuffix(" 00:00:00").removesuffix(":00")


_EPOCH = datetime.datetime(1970, 1, 1)


def parse_time(text):
    """Return the time in a text: a float, or a `datetime` without a time zone.

    A text is a number; a date or a time of ISO 8601, whose offset is subtracted; a year with a
    month, such as "1949-01", "1991 Jul" or "Jul 1991"; or a quarter, such as "1970 Q1".

    Raises:
        ValueError: if it is none of them.
    """
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        return _parse_date(text)
    if not math.isfinite(number):
        raise ValueError("it is not finite")
    return number


def _parse_date(text):
    if match := _QUARTER.fullmatch(text):
        return datetime.datetime(int(match[1]), 3 * int(match[2]) - 2, 1)
    if match := _YEAR_MONTH.fullmatch(text):
        return datetime.datetime(int(match[1]), int(match[2]), 1)
    if match := _YEAR_NAME.fullmatch(text):
        return datetime.datetime(int(match[1]), _month(match[2]), 1)
    if match := _NAME_YEAR.fullmatch(text):
        return datetime.datetime(int(match[2]), _month(match[1]), 1)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        # It says what is wrong with 2026-02-30, but nothing to a reader about a word.
        if "isoformat" in str(error):
            raise ValueError("it is none of them") from None
        raise
    return time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)


def _month(name):
    if name[:3].lower() not in _MONTHS:
        raise ValueError("it names no month")
    return _MONTHS.index(name[:3].lower()) + 1


def as_numbers(times):
    """Return times as numbers, float64 (N,), and their unit.

    Numbers stay as they are. Dates count months if all are the same day of a month, or its last,
    at the same time of day; else microseconds.

    Args:
        times: list of what `parse_time` returns, all numbers or all dates.
    """
    if not isinstance(times[0], datetime.datetime):
        return np.array(times, "float64"), "number"
    if _are_months(times):
        return np.array([12 * time.year + time.month - 1 for time in times], "float64"), "month"
    second = datetime.timedelta(microseconds=1)
    return np.array([(time - _EPOCH) // second for time in times], "float64"), "microsecond"


def _are_months(times):
    """Return True for one day of different months each, the last one counting as one."""
    if len({time.time() for time in times}) > 1:
        return False
    if len({time.date() for time in times}) == 1:  # that a step of a month fits as well as any
        return False
    day = datetime.timedelta(days=1)
    return len({time.day for time in times}) == 1 or all((time + day).day == 1 for time in times)


def find_grid(numbers_by_series, unit):
    """Return the `Grid` of the times of all series.

    The step is the greatest common divisor of the distances of whole numbers. Of fractions it is
    the mean of the distances that are about as long as the shortest.

    Args:
        numbers_by_series: list of float64 arrays, each in ascending order.
        unit: of the numbers.

    Raises:
        ValueError: if fractions have no common step.
    """
    distances = np.concatenate([np.diff(numbers) for numbers in numbers_by_series])
    origin = float(min(numbers[0] for numbers in numbers_by_series))
    if not len(distances):
        return Grid(unit, origin, 1.0)
    if all((numbers == np.round(numbers)).all() for numbers in numbers_by_series):
        return Grid(unit, origin, float(np.gcd.reduce(distances.astype("int64"))))
    shortest = distances.min()
    steps = np.round(distances / shortest)
    step = float(distances.sum() / steps.sum())
    if np.abs(distances / step - steps).max() > _TOLERANCE:
        raise ValueError(
            "Times must have a common step. "
            f"Received: distances of {shortest:g} to {distances.max():g} that are no multiples."
        )
    return Grid(unit, origin, step)


def indices(numbers, grid):
    """Return the numbers of steps from the first time of a series, int64 (N,)."""
    return np.round((numbers - numbers[0]) / grid.step).astype("int64")


def step_of(time, grid):
    """Return the number of steps from the grid's origin."""
    return round((time - grid.origin) / grid.step)
