"""The result card of a run: `card.json` and the curve it tells of, `curve.png`."""

import csv
import datetime
import json
import os
import platform
import sys


def write_card(directory, *, command, history, metric, **facts):
    """Writes the card of a finished run; each file appears complete or not at all.

    Args:
        directory: str. The run's directory.
        command: str. The command that repeats the run.
        history: str. A CSV file as `keras.callbacks.CSVLogger` writes it.
        metric: str. The validation metric drawn beside the losses.
        **facts: anything that JSON holds: numbers, parameters, times.
    """
    rows = read_history(history)
    card = {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": versions(),
        **facts,
        "history": rows,
    }
    _replace(os.path.join(directory, "card.json"), json.dumps(card, indent=1).encode())
    draw_curve(rows, metric, os.path.join(directory, "curve.png"))
    return card


def command_line(module):
    """The command that this process was started with, as a user would type it."""
    import shlex

    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def hardware():
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
        model = names[0] if names else model
    return f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} CPU cores, {model}"


def versions():
    from importlib.metadata import version

    names = ("keras_attn", "keras", "tensorflow", "numpy")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except ImportError:
            continue
    return found


def read_history(path):
    """The rows of a CSVLogger's file, numbers where there are numbers."""
    if not os.path.isfile(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]


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
            left.plot(epochs, values, label=label)
    left.set_xlabel("epoch")
    left.set_ylabel("loss (nats per token)")
    points = [(e, row[metric]) for e, row in zip(epochs, rows) if isinstance(row.get(metric), float)]
    if points:
        right = left.twinx()
        right.plot(*zip(*points), "o-", color="tab:green", markersize=3, label=metric)
        right.set_ylabel(metric)
        right.legend(loc="center right")
    if left.lines:
        left.legend(loc="upper center")
    temporary = f"{path}.{os.getpid()}.png"
    figure.savefig(temporary, dpi=120)
    plt.close(figure)
    os.replace(temporary, path)


def _number(text):
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _replace(path, content):
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
