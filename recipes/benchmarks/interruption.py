"""A run of `recipes.translate` that is killed again and again, beside one that is not."""

import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np

from keras_attn.callbacks.npz import read_arrays
from keras_attn.ops.atomic_files import PARTIAL

from ..provenance import versions
from .card import card_parser, new_card

OPTIONS = "--num-layers 1 --epochs 5 --checkpoint-steps 3"
METHOD = (
    "`recipes.translate` on dates ({options}), once undisturbed, and once killed by SIGKILL "
    "{kills} times, each at a random moment, {seconds} s at most after the first checkpoint of "
    "that start, every second time as soon as it then writes one, and started again to its end. "
    "Kills in a write left a checkpoint half written."
)


def main():
    parser = card_parser("interruption", __doc__, repetitions=1)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="most of a life that trains")
    parser.add_argument("--options", default=OPTIONS, help="of the recipe (default: %(default)s)")
    arguments = parser.parse_args()
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        calm, killed = pathlib.Path(folder, "calm"), pathlib.Path(folder, "killed")
        finish(calm, arguments.options)
        lives = [
            kill(killed, arguments.options, generator.uniform(0, arguments.seconds), life % 2 == 1)
            for life in range(arguments.kills)
        ]
        finish(killed, arguments.options)
        one, other = (json.loads((out / "card.json").read_text()) for out in (calm, killed))
        apart = difference(calm, killed)
    card = new_card(arguments, "A run that is killed again and again", METHOD)
    card.content["versions"] = versions("keras_attn", "keras", "tensorflow")
    card.content["lives"] = lives
    card.headline(*headline(one, other, lives, apart))
    print(card.write(arguments.out))
    return 0


def start(out, options):
    recipe = f"{__package__.removesuffix('.benchmarks')}.translate"
    command = [sys.executable, "-m", recipe, "--out", str(out), *shlex.split(options)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(out, options):
    process = start(out, options)
    _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(said.decode()[-2000:])


def kill(out, options, seconds, in_a_write):
    """Start a run, kill it some seconds after its first checkpoint, and describe its last one.

    With `in_a_write` the kill waits until a checkpoint is being written.
    """
    folder = out / "checkpoint"
    before = newest(folder)
    process = start(out, options)
    while newest(folder) == before and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    while in_a_write and not half_written(folder) and process.poll() is None:
        pass
    process.kill()
    process.communicate()
    return {"checkpoint": newest(folder), "in_a_write": half_written(folder)}


def half_written(folder):
    return any(PARTIAL in name for name in os.listdir(folder))


def newest(folder):
    """The number of the newest checkpoint; 0 if there is none."""
    names = [path.stem for path in folder.glob("checkpoint-*.npz")]
    return max((int(name.rpartition("-")[2]) for name in names), default=0)


def difference(one, other):
    """The greatest difference between anything in the last checkpoints of two runs."""
    found = []
    for out in (one, other):
        folder = out / "checkpoint"
        found.append(read_arrays(folder / f"checkpoint-{newest(folder):08d}.npz")[0])
    pairs = zip(*found, strict=True)
    return max(float(np.abs(np.subtract(a, b, dtype="float64")).max()) for a, b in pairs)


def headline(one, other, lives, apart):
    results = (card["results"].items() for card in (one, other))
    scores = [{split: result["value"] for split, result in found} for found in results]
    losses = [[row["loss"] for row in card["history"]] for card in (one, other)]
    in_a_write = sum(life["in_a_write"] for life in lives)
    return [
        f"- Killed {len(lives)} times, {in_a_write} of them in a write.",
        f"- Exact match, undisturbed: {scores[0]}; killed: {scores[1]}.",
        f"- Greatest difference of any weight, moment or seed at the end: {apart:g}.",
        f"- Greatest difference of an epoch's logged loss: "
        f"{max(abs(a - b) for a, b in zip(*losses, strict=True)):g}.",
    ]


if __name__ == "__main__":
    sys.exit(main())
