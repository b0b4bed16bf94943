"""Result card of a run, `card.json` with its `curve.png`, and its history, `history.csv`."""

import csv
import datetime
import io
import os
import time

import keras

from . import files
from .machine import hardware, versions
from .plots import draw_training


def write_card(options, *, history, metric, **entries):
    """Write the card of a finished run, and its curve.

    Args:
        options: an `Options`; both files are written to its `out`.
        history: str. A file of `History`.
        metric: str. The validation metric drawn beside the losses.
        **entries: anything that JSON holds: numbers, parameters, times; and numbers that are not
            finite, which are null in the file.

    Returns:
        The card, a dict. Its `training_seconds` is the sum over the epochs; of an epoch that was
        resumed within, only its last part counts.
    """
    rows = read_history(history)
    seconds = round(sum(row.get("seconds") or 0 for row in rows), 1)
    card = {**provenance(options), **entries, "training_seconds": seconds, "history": rows}
    files.write_json(os.path.join(options.out, "card.json"), card)
    draw_training(rows, metric, os.path.join(options.out, "curve.png"))
    return card


def provenance(options):
    """Return the entries that make any card repeatable."""
    return {
        "command": options.command,
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": versions("keras_attn", "keras", keras.backend.backend(), "numpy"),
        "options": options.as_dict(),
    }


class EpochSeconds(keras.callbacks.Callback):
    """Log the duration of each epoch, validation included, as `seconds`.

    `processor_seconds` is the processor time of this process in the steps of the epoch, without the
    validation. A file has it after each step of this epoch and of the one before, so that a run
    that resumes within an epoch adds the time of the steps that its checkpoint holds.

    Args:
        path: str. The file.
        first: int. The epoch at which training begins.
        done: int. Steps of that epoch that the checkpoint holds.
    """

    def __init__(self, path, first=0, done=0):
        super().__init__()
        self._path, self._resumed = path, (first, done)
        self._file = None

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()
        first, done = self._resumed
        self._done = done if epoch == first else 0
        self._processor_seconds = self._continue_file(epoch)
        self._begun = time.process_time() - self._processor_seconds

    def on_train_batch_end(self, batch, logs=None):
        self._processor_seconds = time.process_time() - self._begun
        self._file.write(f"{self._epoch},{self._done + batch + 1},{self._processor_seconds:.6f}\n")

    def on_epoch_end(self, epoch, logs=None):
        self._file.close()
        logs["seconds"] = time.monotonic() - self._started
        logs["processor_seconds"] = self._processor_seconds

    def _continue_file(self, epoch):
        """Open the file for an epoch, and return the seconds of its steps that are done.

        The rows of the epoch before stay: its last checkpoint may not be on the disk yet.
        """
        self._epoch, rows = epoch, {}
        if os.path.exists(self._path):
            with open(self._path, encoding="utf-8") as file:
                lines = [line.split(",") for line in file if line.count(",") == 2]
            rows = {(int(e), int(step)): float(seconds) for e, step, seconds in lines}
        kept = [
            f"{e},{step},{seconds:.6f}\n"
            for (e, step), seconds in rows.items()
            if e == epoch - 1 or (e == epoch and step <= self._done)
        ]
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        files.write(self._path, "".join(kept))
        # Each line is written at once, so that a killed run leaves it.
        self._file = open(self._path, "a", buffering=1, encoding="utf-8")
        return rows.get((epoch, self._done), 0.0)


class History(keras.callbacks.Callback):
    """Write the logs of each epoch to a CSV file, which a resumed run continues.

    `keras.callbacks.CSVLogger` decides the columns in the first epoch of each `fit`. Here a metric
    that a later epoch is the first to log, such as that of a validation every fourth epoch, gets a
    column too; it is empty in the epochs without it.

    Args:
        path: str.
        first: int. The epoch at which training begins; rows of it and of later epochs, which a
            killed run may have written, are removed.

    Raises:
        ValueError: if the file is damaged.
    """

    def __init__(self, path, first=0):
        super().__init__()
        self._path = path
        self._rows = [row for row in read_history(path) if row["epoch"] < first]
        _write(path, self._rows)

    def on_epoch_end(self, epoch, logs=None):
        self._rows.append({"epoch": epoch, **(logs or {})})
        _write(self._path, self._rows)


def read_history(path):
    """Return the rows of a file of `History`, with numbers where there are numbers, else None.

    Raises:
        ValueError: if the file is damaged.
    """
    if not os.path.isfile(path):
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        rows = [{}]
    if any(None in row or None in row.values() or not _is_epoch(row.get("epoch")) for row in rows):
        raise ValueError(
            f"The file {path} is damaged; delete it, and the card lacks the epochs until now."
        )
    return [{name: _number(value) for name, value in row.items()} for row in rows]


def _is_epoch(text):
    return text is not None and text.isdecimal()


def _number(text):
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return None


def _write(path, rows):
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write(path, text.getvalue())
