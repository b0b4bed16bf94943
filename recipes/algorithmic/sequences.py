"""Sequences of digits to copy, to reverse and to add, made from a seed."""

from typing import NamedTuple

import numpy as np

DIGITS = 10
PLUS = DIGITS
SYMBOLS = "0123456789+"


class Sequences(NamedTuple):
    """Rows of symbols, as indices of `SYMBOLS`; -1 behind the end of a row."""

    sources: np.ndarray
    targets: np.ndarray


def copy(random, lengths, width):
    """Digits, to be written again."""
    digits = _digits(random, lengths, width)
    return Sequences(digits, digits)


def reverse(random, lengths, width):
    """Digits, to be written from the last to the first."""
    digits = _digits(random, lengths, width)
    places = np.maximum(lengths[:, None] - 1 - np.arange(width), 0)
    return Sequences(digits, np.where(digits < 0, -1, np.take_along_axis(digits, places, axis=1)))


def addition(random, lengths, width):
    """Two numbers with a plus between them, to be added; the last digit of each comes first.

    The first number has 1 .. n // 2 of a row's n symbols, the second the rest but for the plus.
    """
    places = np.arange(width)
    first = random.integers(1, lengths // 2 + 1)
    second = lengths - 1 - first
    numbers = [_number(random, size, width) for size in (first, second)]
    later = np.take_along_axis(numbers[1], np.maximum(places - first[:, None] - 1, 0), axis=1)
    sources = np.where(places < first[:, None], numbers[0], later)
    sources[np.arange(len(lengths)), first] = PLUS
    sources[places >= lengths[:, None]] = -1
    totals, carry = np.empty_like(sources), np.zeros_like(lengths)
    for place in range(width):
        carry, totals[:, place] = np.divmod(
            numbers[0][:, place] + numbers[1][:, place] + carry, DIGITS
        )
    num_digits = 1 + np.max(np.where(totals > 0, places, 0), axis=1)
    totals[places >= num_digits[:, None]] = -1
    return Sequences(sources, totals)


TASKS = {"copy": copy, "reverse": reverse, "addition": addition}
SHORTEST = {"copy": 1, "reverse": 1, "addition": 3}


def carries(sources):
    """How many digits before each digit of a sum the carry comes from, 0 where there is none.

    Args:
        sources: rows of an addition, (B, width).

    Returns:
        int array (B, width), by place in the sum.
    """
    found = np.zeros_like(sources)
    for row, run in zip(sources, found, strict=True):
        symbols = [symbol for symbol in row if symbol >= 0]
        plus = symbols.index(PLUS)
        numbers = symbols[:plus], symbols[plus + 1 :]
        carry = length = 0
        for place in range(len(run)):
            run[place] = length
            column = sum(number[place] for number in numbers if place < len(number))
            # A carry that only a carry makes is the same one, come farther.
            made, carry = column >= DIGITS, column + carry >= DIGITS
            length = 0 if not carry else 1 if made else length + 1
    return found


def _digits(random, lengths, width):
    digits = random.integers(0, DIGITS, (len(lengths), width))
    return np.where(np.arange(width) < lengths[:, None], digits, -1)


def _number(random, lengths, width):
    """Numbers of so many digits, 0 behind them; the last is not 0 unless it is the only one."""
    digits = np.maximum(_digits(random, lengths, width), 0)
    rows = np.flatnonzero(lengths > 1)
    digits[rows, lengths[rows] - 1] = random.integers(1, DIGITS, len(rows))
    return digits
