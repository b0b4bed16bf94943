"""A run of a recipe that is killed again and again, beside one that is not."""

import dataclasses
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

from keras_attn.callbacks.checkpoints import Checkpoints
from keras_attn.files import PARTIAL

from ..common.card import read_history
from ..common.machine import cluster_settings, versions
from .card import card_parser, execute, new_card, positive, sentence
from .requirements import check

RECIPES = pathlib.Path(__file__).parents[1]
OPTIONS = "--num-layers 1 --epochs 5 --checkpoint-steps 3"
METHOD = (
    "`recipes.{recipe} {options}`, in {processes} process(es) of {devices} device(s), "
    "once undisturbed, and once killed by SIGKILL {kills} times, each at a random moment, "
    "{seconds} s at most after the first checkpoint of that start, every second time as soon as it "
    "then writes one, and started again to its end. Kills in a write left a checkpoint half "
    "written."
)


def main():
    parser = card_parser("interruption", __doc__)
    parser.add_argument("--kills", type=positive, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="most of a life that trains")
    known = sorted(path.parent.name for path in RECIPES.glob("*/__main__.py"))
    parser.add_argument("--recipe", choices=known, default="translate")
    parser.add_argument("--options", default=OPTIONS, help="of the recipe (default: %(default)s)")
    parser.add_argument(
        "--processes",
        type=positive,
        default=1,
        help="of each start; several need KERAS_BACKEND=jax, and a strategy among the options",
    )
    parser.add_argument(
        "--devices", type=positive, default=1, help="CPU devices of a process, on JAX"
    )
    arguments = parser.parse_args()
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        calm, killed = (Run(pathlib.Path(folder, name), arguments) for name in ("calm", "killed"))
        calm.finish()
        lives = [
            killed.kill(generator.uniform(0, arguments.seconds), in_a_write=life % 2 == 1)
            for life in range(arguments.kills)
        ]
        killed.finish()
        card = new_card(arguments, "A run that is killed again and again", METHOD)
        asked = differences(calm, killed)
        card.headline(*headline(calm, killed, lives), *(f"- {sentence(c)}" for c in asked))
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    card.content["versions"] = versions("keras_attn", "keras", backend)
    card.content["lives"] = lives
    print(card.write(arguments.out))
    return 0 if all(comparison["met"] for comparison in asked) else 1


@dataclasses.dataclass(frozen=True)
class Started:
    """A started process, and the file that its stderr is written to."""

    process: subprocess.Popen
    stderr: object


class Run:
    """A run in a directory, which several processes may train.

    Args:
        out: path. The run's directory.
        arguments: the command line's `recipe`, `options`, `processes` and `devices`.
    """

    def __init__(self, out, arguments):
        self.out, self.folder, self._arguments = out, out / "checkpoint", arguments
        if arguments.processes > 1:
            _wait([self._start(*shlex.split(arguments.options), "--prepare")])

    def finish(self):
        """Train to the end."""
        _wait(self._processes())

    def kill(self, seconds, in_a_write):
        """Start the run, kill it some seconds after its first checkpoint, and describe its last.

        With `in_a_write` the kill waits until a checkpoint is being written.
        """
        before = self.newest()
        processes = self._processes()

        def trains():
            return all(started.process.poll() is None for started in processes)

        while self.newest() == before and trains():
            time.sleep(0.02)
        time.sleep(seconds)
        while in_a_write and not self._half_written() and trains():
            time.sleep(0.0005)
        if not trains():
            _raise_ended(processes)
        for started in processes:
            started.process.kill()
        for started in processes:
            started.process.wait()
        return {"checkpoint": self.newest(), "in_a_write": self._half_written()}

    def newest(self):
        """Return the number of the newest checkpoint; 0 if there is none."""
        return max(self._checkpoints().numbers(), default=0)

    def state(self):
        """Return the arrays of the newest checkpoint."""
        with self._checkpoints().read(self.newest()) as state:
            return [state.read(number) for number in range(len(state.shapes))]

    def losses(self):
        return [row["loss"] for row in read_history(self.out / "history.csv")]

    def scores(self):
        """Return the results of the card, which a run on JAX leaves to TensorFlow."""
        card = self.out / "card.json"
        results = json.loads(card.read_text())["results"] if card.exists() else {}
        return {split: result["value"] for split, result in results.items()}

    def _checkpoints(self):
        return Checkpoints(self.folder)

    def _half_written(self):
        return any(PARTIAL in name for name in os.listdir(self.folder))

    def _processes(self):
        options, count = shlex.split(self._arguments.options), self._arguments.processes
        if count == 1:
            return [self._start(*options)]
        return [self._start(*options, TF_CONFIG=setting) for setting in cluster_settings(count)]

    def _start(self, *options, **environment):
        recipe = f"{__package__.removesuffix('.benchmarks')}.{self._arguments.recipe}"
        if self._arguments.devices > 1:
            count = self._arguments.devices
            flag = f"--xla_force_host_platform_device_count={count}"
            environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = (
            "0"  # later starts compile nothing
        )
        stderr = tempfile.TemporaryFile()  # no pipe, which blocks the process when it is full
        process = subprocess.Popen(
            [sys.executable, "-m", recipe, "--out", str(self.out), *options],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        return Started(process, stderr)


def _wait(processes):
    if any([started.process.wait() for started in processes]):
        raise RuntimeError(_said(processes))


def _raise_ended(processes):
    """Raise an error, since a process has ended before it was killed."""
    for started in processes:
        started.process.kill()
        started.process.wait()
    raise RuntimeError(f"The run ended before it was killed.\n{_said(processes)}")


def _said(processes):
    """Return the end of what ended processes have written to stderr."""
    texts = []
    for started in processes:
        started.stderr.seek(0)
        texts.append(started.stderr.read().decode(errors="replace")[-2000:])
    return "\n".join(texts)


def headline(calm, killed, lives):
    in_a_write = sum(life["in_a_write"] for life in lives)
    lines = [f"- Killed {len(lives)} times, {in_a_write} of them in a write."]
    if calm.scores():
        lines.append(f"- Exact match, undisturbed: {calm.scores()}; killed: {killed.scores()}.")
    return lines


def differences(calm, killed):
    """Return the comparisons of both runs at their end: nothing may differ, and nothing be NaN."""
    pairs = {
        "arrays of weights, moments and seeds": zip(calm.state(), killed.state(), strict=True),
        "logged losses of epochs": zip(calm.losses(), killed.losses(), strict=True),
    }
    checks = []
    for name, each in pairs.items():
        equal = [is_same(*pair) for pair in each]
        unequal = equal.count(False)
        statement = f"Of {len(equal)} {name} at the end, {unequal} differ"
        checks.append(check(name, statement, unequal, at_most=0))
    return checks


def is_same(a, b):
    """Return True if two arrays or numbers are equal byte for byte; NaN is equal to nothing."""
    a, b = np.asarray(a), np.asarray(b)
    is_alike = a.dtype == b.dtype and a.shape == b.shape
    return is_alike and a.tobytes() == b.tobytes() and bool((a == a).all())


if __name__ == "__main__":
    execute(main)
