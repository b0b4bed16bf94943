"""Texts with labels: those of the user's files, or data that need neither files nor a network."""

import datetime
from typing import NamedTuple

import numpy as np

from ..common import files
from ..common.files import SPLITS
from ..translate.dates import date_pairs
from .python_source import code_lines, docstrings_by_package
from .tables import read_rows


class Examples(NamedTuple):
    """Texts, second texts (None without them), and labels, lists of one length.

    Of rows of a file, `lines` has the number of each, and `path` is the file.
    """

    texts: list
    second_texts: list | None
    labels: list
    lines: list | None = None
    path: str | None = None

    def __len__(self):
        return len(self.texts)

    def place(self, index):
        """Return where a row is, for an error."""
        if self.lines is None:
            return f"row {index + 1}"
        return f"line {self.lines[index]} of the file {self.path}"

    def digest(self):
        """Return a hash of all texts and labels."""
        return files.digest(*map(repr, (*self.texts, *(self.second_texts or ()), *self.labels)))


def read_examples(options):
    """Return the name of the data, and a dict of `Examples` by split; `test` may be missing."""
    paths = {"train": options.train, "valid": options.valid, "test": options.test}
    if options.train is None:
        name, rows = _made_offline(options.task, options.seed)
    else:
        name = options.train
        rows = {split: _read(path, options) for split, path in paths.items() if path}
    if "valid" not in rows:
        rows["train"], rows["valid"] = _divide(rows["train"], options, name)
        paths["valid"] = options.train
    return name, {
        split: _examples(rows[split], options, paths[split]) for split in SPLITS if split in rows
    }


def _read(path, options):
    """Return the rows of a file: texts, second texts, labels, and the numbers of their lines.

    Where a task has no labels they are "".
    """
    columns = [name for name in (options.text_column, options.pair_column) if name is not None]
    labels = [] if options.task == "language_model" else [options.label_column]
    rows = read_rows(path, *columns, *labels)
    kinds = (str, list) if options.task == "tokens" else str
    for line, row in rows:
        for column, value in zip(columns, row, strict=False):
            if not isinstance(value, kinds):
                raise ValueError(
                    f"The column {column!r} of the file {path} must have texts. "
                    f"Received: {value!r} in line {line}."
                )
    return [[*row, *([] if labels else [""]), line] for line, row in rows]


def _divide(rows, options, name):
    """Return the rows for training, and those held out, drawn by the seed."""
    held_out = round(len(rows) * options.valid_share)
    if not 0 < held_out < len(rows):
        raise ValueError(
            "--valid-share must hold out a row and leave one, or give --valid. "
            f"Received: --valid-share {options.valid_share} of {len(rows)} rows of {name}."
        )
    order = np.random.default_rng(options.seed).permutation(len(rows))
    rows = [rows[i] for i in order]
    return rows[held_out:], rows[:held_out]


def _examples(rows, options, path):
    columns = [*map(list, zip(*rows, strict=True))]
    lines = None if path is None else columns.pop()
    second_texts = columns[1] if options.pair_column else None
    return Examples(columns[0], second_texts, columns[-1], lines, path)


def _made_offline(task, seed):
    """Return the name of a task's own data, and their rows by split."""
    if task in ("regression", "translation"):
        rows = date_pairs(5000, 500, 500, seed=seed, locales=("de", "en", "fr"))
        rows["valid"] = rows.pop("val")
        if task == "translation":
            return "dates", rows
        days = {part: [(text, _day_of_year(iso)) for text, iso in rows[part]] for part in rows}
        return "day of the year of a date", days
    if task in ("tokens", "several_labels"):
        name, rows = "kinds of words of Python", code_lines()
        if task == "several_labels":
            rows = [(line, sorted({*kinds.split()})) for line, kinds in rows]
    elif task == "answers":
        name = "the word of a kind in a line of Python"
        rows = _words_of_a_kind(code_lines(), np.random.default_rng(seed))
    else:
        name, rows = "package of a docstring", docstrings_by_package()
    if task == "language_model":
        name, rows = "docstrings", [(text, "") for text, _ in rows]
    order = np.random.default_rng(seed).permutation(len(rows))
    rows, held_out = [rows[i] for i in order], len(rows) // 10
    return name, {"train": rows[held_out:], "test": rows[:held_out]}


def _words_of_a_kind(lines, rng):
    """Return lines with a kind that one of their words has, and the word with its place.

    A line has one question, so that no line is in two parts of the data.
    """
    rows = []
    for line, kinds in lines:
        words, kinds = line.split(), kinds.split()
        unique = [index for index, kind in enumerate(kinds) if kinds.count(kind) == 1]
        if unique:
            index = rng.choice(unique)
            start = len(" ".join([*words[:index], ""]))
            rows.append((line, kinds[index], {"text": words[index], "start": start}))
    return rows


def _day_of_year(iso):
    return datetime.date.fromisoformat(iso).timetuple().tm_yday
