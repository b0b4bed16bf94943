"""Time series of a table: a row for each time, columns of values, ids of many series, labels."""

import hashlib
import math
from typing import NamedTuple

import numpy as np

from ..fine_tune.tables import read_names, read_rows
from .times import Grid, as_numbers, find_grid, indices, parse_time, step_of

# What other programs write for a missing value.
MISSING = {"", "?", "na", "n/a", "nan", "null", "none", "-nan", "<na>"}
# More steps than rows by this factor are no gaps, but times without a common step.
_MOST_STEPS = 20


class Series(NamedTuple):
    """A series.

    Attributes:
        name: str. Its id; "" of a table without ids.
        start: int. The step of its first value, from the first time of the table.
        values: float32 (T, C). NaN is a missing value.
        label: str; None without a column of labels.
    """

    name: str
    start: int
    values: np.ndarray
    label: str | None = None


class SeriesTable(NamedTuple):
    """All series of a table, with the `Grid` of their times and the names of their values."""

    series: list
    grid: Grid
    columns: list

    def digest(self):
        """Return the SHA-256 of all series."""
        sha256 = hashlib.sha256(repr((self.grid, self.columns)).encode())
        for name, start, values, label in self.series:
            sha256.update(repr((name, start, values.shape, label)).encode())
            sha256.update(np.nan_to_num(values, nan=np.float32(3e38)).tobytes())
        return sha256.hexdigest()


def read_series(path, time_column="time", id_column=None, value_columns=(), label_column=None):
    """Read the series of a `.csv` or `.tsv` file, which may be compressed (`.gz`).

    Args:
        path: str.
        time_column: str. Times ascend within a series; a step without a row is a missing value.
        id_column: str. Rows of one id are one series; None for one series.
        value_columns: names of columns of numbers, in which an empty field, "NaN" and the like are
            missing; () for all other columns.
        label_column: str. Rows of one series have one label; None without labels.

    Returns:
        A `SeriesTable`.

    Raises:
        ValueError: if the file is missing, empty, damaged or not UTF-8, a column is missing, a
            value is no finite number, times are no times, out of order or repeated, a series has
            two labels, or there are not two values.
    """
    others = [name for name in (time_column, id_column, label_column) if name is not None]
    columns = [*value_columns] or [name for name in read_names(path) if name not in others]
    if not columns:
        raise ValueError(f"The file {path} must have a column of values beside {others}.")
    rows = read_rows(path, *others, *columns, may_be_empty=columns)
    reader = _Reader(path, others, columns, id_column, label_column)
    for line, fields in rows:
        reader.add(line, fields)
    return reader.table()


class _Reader:
    """Rows of a table, collected by series."""

    def __init__(self, path, others, columns, id_column, label_column):
        self._path, self._columns, self._time_column = path, columns, others[0]
        self._id_column, self._label_column = id_column, label_column
        self._num_others = len(others)
        self._rows = {}  # lists of times, values and lines, by id
        self._labels = {}

    def add(self, line, fields):
        others, texts = fields[: self._num_others], fields[self._num_others :]
        name = others[1] if self._id_column is not None else ""
        times, values, lines = self._rows.setdefault(name, ([], [], []))
        times.append(self._time(others[0], line))
        if len(times) > 1:
            self._check_order(name, times, lines, line, others[0])
        values.append([self._number(*pair, line) for pair in zip(self._columns, texts)])
        lines.append(line)
        if self._label_column is not None:
            label = self._labels.setdefault(name, others[-1])
            if label != others[-1]:
                raise ValueError(
                    f"A series must have one label. Received: {label!r} and {others[-1]!r} in line "
                    f"{line} of the file {self._path}."
                )

    def table(self):
        times = [time for own, _, _ in self._rows.values() for time in own]
        numbers, unit = as_numbers(times)
        ends = np.cumsum([len(own) for own, _, _ in self._rows.values()])
        numbers = np.split(numbers, ends[:-1])
        if sum(map(len, numbers)) < 2:
            raise ValueError(f"The file {self._path} must have two times at least. Received: one.")
        try:
            grid = find_grid(numbers, unit)
        except ValueError as error:
            raise ValueError(f"{error} They are in the file {self._path}.") from None
        series = [
            self._series(name, own, grid) for name, own in zip(self._rows, numbers, strict=True)
        ]
        if not any(np.isfinite(one.values).any() for one in series):
            raise ValueError(
                f"The file {self._path} must have values. Received: only missing ones."
            )
        return SeriesTable(series, grid, self._columns)

    def _series(self, name, numbers, grid):
        steps = indices(numbers, grid)
        if steps[-1] > _MOST_STEPS * len(steps):
            raise ValueError(
                f"Times must have a common step. Received: {len(steps)} times over "
                f"{steps[-1] + 1} steps{self._of(name)} of the file {self._path}."
            )
        values = np.full((steps[-1] + 1, len(self._columns)), np.nan, "float32")
        values[steps] = self._rows[name][1]
        return Series(name, step_of(numbers[0], grid), values, self._labels.get(name))

    def _time(self, text, line):
        try:
            return parse_time(text)
        except ValueError as error:
            raise ValueError(
                f"The column {self._time_column!r} must have numbers, dates or times, such as "
                f"2026-01-31 or 2026-01-31 12:30. Received: {text!r} in line {line} of the file "
                f"{self._path}: {str(error).lower()}."
            ) from None

    def _check_order(self, name, times, lines, line, text):
        before, now = times[-2:]
        if type(before) is not type(now):
            raise ValueError(
                f"All times must be numbers, or all dates. Received: {text!r} in line {line} of "
                f"the file {self._path}."
            )
        if now <= before:
            problem = "is repeated" if now == before else "is earlier"
            raise ValueError(
                f"Times must ascend within a series. Received: {text!r} in line {line} of the file "
                f"{self._path} {problem}, after line {lines[-1]}{self._of(name)}."
            )

    def _number(self, column, text, line):
        """Return the number in a field; NaN for a missing one."""
        if text is None:
            raise ValueError(
                "Each row must have a field for each column, which may be empty. Received: none "
                f"for the column {column!r} in line {line} of the file {self._path}."
            )
        text = text.strip()
        if text.lower() in MISSING:
            return math.nan
        try:
            number = float(text)
        except ValueError:
            number = None
        # float32 has no larger numbers.
        if number is None or not abs(number) < 3e38:
            wanted = "numbers" if number is None else "finite numbers"
            raise ValueError(
                f"The column {column!r} must have {wanted}, or empty fields for missing ones. "
                f"Received: {text!r} in line {line} of the file {self._path}."
            )
        return number

    def _of(self, name):
        return "" if self._id_column is None else f" in the series {name!r}"
