"""Runs of an experiment, its command line and its card."""

import argparse
import dataclasses
import datetime
import json
import pathlib
import statistics
import time
from collections.abc import Callable

import keras

from ..files import read_object, write
from ..provenance import command_line, hardware, versions

CARDS = pathlib.Path(__file__).parent / "cards"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One question, the runs that answer it, and their card.

    Args:
        name: string. The name of its module and its card.
        question: string. One sentence.
        method: string. Model, data and budget.
        values: dict of the name of a value to the argument of `run`.
        run: function that trains a model, and returns a dict of column to number.
        digits: int. Decimals on the card.
    """

    name: str
    question: str
    method: str
    values: dict
    run: Callable
    digits: int = 2

    def main(self, arguments=None):
        """Run what the card lacks, write the card after each run, and print it."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {__package__}.{self.name}", description=self.question
        )
        parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
        parser.add_argument(
            "--values", nargs="+", choices=list(self.values), default=[*self.values]
        )
        parser.add_argument("--out", default=CARDS, type=pathlib.Path, help="folder of the card")
        options = parser.parse_args(arguments)
        path = options.out / f"{self.name}.json"
        runs = read_object(path, "delete it", "runs")["runs"] if path.exists() else []
        wanted = [(seed, value) for seed in options.seeds for value in options.values]
        done = {(run["seed"], run["value"]) for run in runs}
        for seed, value in wanted:
            if (seed, value) not in done:
                runs.append(self._run(seed, value))
                self._write(options.out, runs)
        print(self.markdown(runs))

    def _run(self, seed, value):
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        started = time.monotonic()
        numbers = self.run(self.values[value])
        seconds = time.monotonic() - started
        print(f"{value}, seed {seed}: {numbers}, {seconds:.0f} s", flush=True)
        return {"value": value, "seed": seed, "seconds": round(seconds, 1), **numbers}

    def _write(self, folder, runs):
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "command": command_line(),
            "date": datetime.date.today().isoformat(),
            "hardware": hardware(),
            "versions": versions("keras_attn", "keras", "tensorflow"),
            "runs": runs,
        }
        write(folder / f"{self.name}.json", json.dumps(content, indent=1) + "\n")
        write(folder / f"{self.name}.md", self.markdown(runs))

    def markdown(self, runs):
        """Return the card: a row for each value, with the numbers of all seeds and their median."""
        columns = [name for name in runs[0] if name not in ("value", "seed", "seconds")]
        lines = [f"# {self.question}", "", self.method, ""]
        lines += [f"- Command: `python -m {__package__}.{self.name}`", f"- Hardware: {hardware()}"]
        lines += ["", "Median over the seeds, then the number of each seed.", ""]
        lines += [f"| value | {' | '.join(columns)} |", "| --- |" + " --: |" * len(columns)]
        for value in self.values:
            own = [run for run in runs if run["value"] == value]
            if own:
                cells = [self._cell([run[name] for run in own]) for name in columns]
                lines.append(f"| {value} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _cell(self, numbers):
        if isinstance(numbers[0], int):  # a count of weights, the same for all seeds
            return f"{numbers[0]:,}"
        median = statistics.median(numbers)
        each = ", ".join(f"{number:.{self.digits}f}" for number in numbers)
        return f"**{median:.{self.digits}f}** ({each})"
