"""Result card of a run: `card.json`, and the curve `curve.png`."""

import csv
import datetime
import json
import os
import time

import keras

from . import files
from .plots import draw_training
from .provenance import hardware, versions


def write_card(options, *, history, metric, **entries):
    """Write the card of a finished run, and its curve.

    Args:
        options: an `Options`; both files are written to its `out`.
        history: str. A CSV file of `keras.callbacks.CSVLogger`.
        metric: str. The validation metric drawn beside the losses.
        **entries: anything that JSON holds: numbers, parameters, times.

    Returns:
        The card, a dict. Its `training_seconds` is the sum over all parts of a resumed run.
    """
    rows = read_history(history)
    seconds = round(sum(row.get("seconds") or 0 for row in rows), 1)
    card = {**provenance(options), **entries, "training_seconds": seconds, "history": rows}
    files.write(os.path.join(options.out, "card.json"), json.dumps(card, indent=1))
    draw_training(rows, metric, os.path.join(options.out, "curve.png"))
    return card


def provenance(options):
    """Return the entries that make any card repeatable."""
    return {
        "command": options.command,
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": versions("keras_attn", "keras", "tensorflow", "numpy"),
        "options": options.as_dict(),
    }


class EpochSeconds(keras.callbacks.Callback):
    """Log the duration of each epoch, validation included, as `seconds`."""

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = time.monotonic() - self._started


def read_history(path):
    """Return the rows of a CSVLogger's file, with numbers where there are numbers.

    Raises:
        ValueError: if the file is damaged.
    """
    if not os.path.isfile(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if any("epoch" not in row or None in row or None in row.values() for row in rows):
        raise ValueError(f"The file {path} is damaged; delete it, and the card is written without.")
    return [{name: _number(value) for name, value in row.items()} for row in rows]


def cut_history(path, epochs):
    """Keep the rows of the first epochs: a killed run may have begun others."""
    if not os.path.isfile(path):
        return
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = file.read().splitlines(keepends=True) or [""]
    names = head.count(",")
    kept = [
        row
        for row in rows
        if row.count(",") == names and row.endswith("\n") and int(row.split(",")[0]) < epochs
    ]
    files.write(path, "".join([head, *kept]))


def _number(text):
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return None
