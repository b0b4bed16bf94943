"""Examples of the tasks: sequences of digits, and vectors of signs, made from a seed."""

from typing import NamedTuple

import numpy as np

DIGITS = 10
PLUS = DIGITS
SYMBOLS = "0123456789+"


class Sequences(NamedTuple):
    """Rows of symbols, as indices of `SYMBOLS`, padded with -1."""

    sources: np.ndarray
    targets: np.ndarray


def copy(random, lengths, width):
    """Draw digits to copy."""
    digits = _digits(random, lengths, width)
    return Sequences(digits, digits)


def reverse(random, lengths, width):
    """Draw digits to write in reverse order."""
    digits = _digits(random, lengths, width)
    places = np.maximum(lengths[:, None] - 1 - np.arange(width), 0)
    return Sequences(digits, np.where(digits < 0, -1, np.take_along_axis(digits, places, axis=1)))


def addition(random, lengths, width):
    """Draw two numbers to add, with a plus between them, each with its last digit first.

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


def carries(sources):
    """Return how many digits the carry of each digit of a sum has come, 0 where there is none.

    Both the rows of an addition and the result are int arrays (B, width).
    """
    targets = np.zeros_like(sources)
    for row, run in zip(sources, targets, strict=True):
        symbols = [symbol for symbol in row if symbol >= 0]
        plus = symbols.index(PLUS)
        numbers = symbols[:plus], symbols[plus + 1 :]
        carry = length = 0
        for place in range(len(run)):
            run[place] = length
            column = sum(number[place] for number in numbers if place < len(number))
            # A carry that exists only because of a carry is the same one, one digit farther.
            is_new, carry = column >= DIGITS, column + carry >= DIGITS
            length = 0 if not carry else 1 if is_new else length + 1
    return targets


class Vectors(NamedTuple):
    """Rows of signs, 1 for +1 and 0 for -1, padded with -1; label 1 if the number of +1 is odd."""

    signs: np.ndarray
    labels: np.ndarray

    @property
    def inputs(self):
        """Sequences (B, 1, width) of one vector: 1, -1, and 0 for padding."""
        return np.where(self.signs < 0, 0, 2 * self.signs - 1)[:, None].astype("float32")


def parity(random, lengths, width):
    """Draw Graves' parity vectors: the first `lengths` numbers are 1 or -1, the others 0."""
    signs = random.integers(0, 2, (len(lengths), width))
    signs = np.where(np.arange(width) < lengths[:, None], signs, -1)
    return Vectors(signs, np.sum(signs == 1, axis=1) % 2)


def _digits(random, lengths, width):
    digits = random.integers(0, DIGITS, (len(lengths), width))
    return np.where(np.arange(width) < lengths[:, None], digits, -1)


def _number(random, lengths, width):
    """Draw numbers of so many digits, padded with 0, without leading zeros."""
    digits = np.maximum(_digits(random, lengths, width), 0)
    rows = np.flatnonzero(lengths > 1)
    digits[rows, lengths[rows] - 1] = random.integers(1, DIGITS, len(rows))
    return digits


TASKS = {"copy": copy, "reverse": reverse, "addition": addition, "parity": parity}
# Length of the shortest example.
SHORTEST = {"copy": 1, "reverse": 1, "addition": 3, "parity": 1}
