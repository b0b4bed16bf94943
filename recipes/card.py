"""Result card of a run: `card.json`, and the curve `curve.png`."""

import datetime
import json
import os

import keras

from . import files
from .history import read_history
from .plots import draw_training
from .provenance import hardware, versions


def write_card(options, *, history, metric, **entries):
    """Write the card of a finished run, and its curve.

    Args:
        options: an `Options`; both files are written to its `out`.
        history: str. A file of `History`.
        metric: str. The validation metric drawn beside the losses.
        **entries: anything that JSON holds: numbers, parameters, times.

    Returns:
        The card, a dict. Its `training_seconds` is the sum over the epochs; of an epoch that was
        resumed within, only its last part counts.
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
        "versions": versions("keras_attn", "keras", keras.backend.backend(), "numpy"),
        "options": options.as_dict(),
    }
