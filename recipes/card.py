"""The result card of a run: `card.json` and the curve it tells of, `curve.png`."""

import csv
import datetime
import json
import os
import time

import keras

from keras_attn.ops.atomic_files import atomic_file

from . import files
from .provenance import command_line, hardware, versions


def write_card(directory, *, history, metric, **facts):
    """Writes the card of a finished run; each file appears complete or not at all.

    Args:
        directory: str. The run's directory.
        history: str. A CSV file as `keras.callbacks.CSVLogger` writes it.
        metric: str. The validation metric drawn beside the losses.
        **facts: anything that JSON holds: numbers, parameters, times.

    Returns:
        The card, a dict. Its `training_seconds` is the sum over all parts of a resumed run.
    """
    rows = read_history(history)
    facts["training_seconds"] = round(sum(row.get("seconds") or 0 for row in rows), 1)
    card = {
        "command": command_line(),
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": versions("keras_attn", "keras", "tensorflow", "numpy"),
        **facts,
        "history": rows,
    }
    files.write(os.path.join(directory, "card.json"), json.dumps(card, indent=1))
    draw_curve(rows, metric, os.path.join(directory, "curve.png"))
    return card


class EpochSeconds(keras.callbacks.Callback):
    """Logs how long each epoch took, validation included, as `seconds`."""

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = time.monotonic() - self._started


def read_history(path):
    """The rows of a CSVLogger's file, numbers where there are numbers.

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
    """Leaves the rows of the first epochs: a run that was killed may have begun others."""
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


def draw_curve(rows, metric, path):
    """Losses and the validation metric over the epochs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, left = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    epochs = [row["epoch"] + 1 for row in rows]
    for name, label in (("loss", "training loss"), ("val_loss", "validation loss")):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, float) for value in values):
            left.plot(epochs, values, ".-", label=label)
    left.set_xlabel("epoch")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_ylabel("loss (nats per token)")
    points = [
        (e, row[metric]) for e, row in zip(epochs, rows) if isinstance(row.get(metric), float)
    ]
    if points:
        right = left.twinx()
        right.plot(*zip(*points), "o-", color="tab:green", markersize=3, label=metric)
        right.set_ylabel(metric)
        right.legend(loc="center right")
    if left.lines:
        left.legend(loc="upper center")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)


def _number(text):
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
