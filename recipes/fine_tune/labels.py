"""Labels of rows: their names, which must differ by more than their writing, and their numbers."""

import collections
import decimal
import json
import math
import re
import unicodedata

# Python's own numbers include "1_05", which is a code rather than 105. No exponent is too long for
# a decimal number.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_TRUTH_VALUES = {"true": "1", "false": "0"}


def label_name(label):
    """Return a label as a string; JSON's numbers and truth values as JSON writes them."""
    if isinstance(label, list | dict):
        raise ValueError(f"A label must be a string or a number. Received: {label!r}.")
    return label if isinstance(label, str) else json.dumps(label)


def label_number(label):
    """Return the number of a label, a float; NaN if it is none, or too large."""
    if isinstance(label, str):
        label = label.strip()
    is_number = not isinstance(label, bool | str) or _writes_number(label)
    try:
        return float(label) if is_number else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def check_writing(names, column, place):
    """Refuse names of labels that differ by white space, or by the writing of a number, alone.

    The number of `true` is 1, that of `false` 0. Names that differ by capitals alone are printed.

    Args:
        names: iterable of str, each once.
        column: str. Name of the column, for the errors.
        place: function of a name that returns where it is, such as "line 3 of the file a.csv".
    """
    by_meaning, by_letters = collections.defaultdict(list), collections.defaultdict(list)
    for name in sorted(names):
        meaning = _meaning(name)
        by_meaning[meaning].append(name)
        by_letters[str(meaning).casefold()].append(name)
    for same in by_meaning.values():
        if len(same) > 1:
            raise ValueError(
                f"The column {column!r} must write each label in one way. "
                f"Received: {_listed(same, place)}."
            )
    for same in by_letters.values():
        if len(same) > 1:
            print(f"Labels that differ by capitals are not the same: {_listed(same, place)}.")


def _writes_number(label):
    return isinstance(label, str) and _NUMBER.fullmatch(label) is not None


def _meaning(name):
    """Return what the names of one label have in common: a number, or visible characters."""
    characters = unicodedata.normalize("NFKC", name)
    visible = "".join(c for c in characters if unicodedata.category(c) != "Cf")
    text = " ".join(visible.split())
    text = _TRUTH_VALUES.get(text, text)
    # Not a float, which is the same for long numbers that differ.
    return decimal.Decimal(text) if _writes_number(text) else text


def _listed(names, place):
    *others, last = (f"{name!r} in {place(name)}" for name in names)
    return f"{', '.join(others)} and {last}"
