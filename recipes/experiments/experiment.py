"""Runs of an experiment, its command line and its card."""

import argparse
import dataclasses
import datetime
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import keras

from ..common.cli import EXIT_INTERRUPTED, EXIT_USAGE, sentence
from ..common.files import read_object, write, write_json
from ..common.machine import command_line, hardware, versions
from ..common.settings import check_out

CARDS = pathlib.Path(__file__).parent / "cards"
# Entries of a run that are no numbers.
PROVENANCE = ("command", "date", "hardware", "versions")
ENTRIES = ("value", "seed", "seconds", *PROVENANCE)


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
        """Run what the card lacks, write the card after each run, and print it.

        Returns:
            The exit code.
        """
        parser = argparse.ArgumentParser(
            prog=f"python -m {__package__}.{self.name}", description=self.question
        )
        parser.add_argument(
            "--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2"
        )
        parser.add_argument(
            "--values",
            nargs="+",
            choices=list(self.values),
            default=[*self.values],
            metavar="VALUE",
            help=f"default: all of {', '.join(map(repr, self.values))}",
        )
        parser.add_argument("--out", default=CARDS, type=pathlib.Path, help="folder of the card")
        options = parser.parse_args(arguments)
        try:
            self._complete(options)
        except (OSError, ValueError) as error:
            print(f"{__package__}.{self.name}: {sentence(error)}", file=sys.stderr)
            return EXIT_USAGE
        except KeyboardInterrupt:
            print("Stopped; the same command runs what the card lacks.", file=sys.stderr)
            return EXIT_INTERRUPTED
        return 0

    def _complete(self, options):
        check_out(options.out)
        runs = read_runs(options.out / f"{self.name}.json")
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
        return {
            "value": value,
            "seed": seed,
            "seconds": round(seconds, 1),
            **numbers,
            "command": command_line(),
            "date": datetime.date.today().isoformat(),
            "hardware": hardware(),
            "versions": versions("keras_attn", "keras", keras.backend.backend()),
        }

    def _write(self, folder, runs):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{self.name}.json", {"runs": runs})
        write(folder / f"{self.name}.md", self.markdown(runs))

    def markdown(self, runs):
        """Return the card: a row for each value, with the numbers of all seeds and their median."""
        columns = [name for name in runs[0] if name not in ENTRIES]
        lines = [f"# {self.question}", "", self.method, ""]
        lines += [f"- Command: `{command}`" for command in _different(runs, "command")]
        lines += [f"- Hardware: {machine}" for machine in _different(runs, "hardware")]
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


def read_runs(path):
    """Return the runs of a card, each with its provenance; none if there is no card.

    Cards of earlier versions have one provenance, that of all their runs.

    Raises:
        ValueError: if the card is damaged.
    """
    if not path.exists():
        return []
    remedy = "delete it"
    card = read_object(path, remedy, "runs")
    shared = {name: card[name] for name in PROVENANCE if name in card}
    if not all(isinstance(run, dict) and {*ENTRIES} <= {*shared, *run} for run in card["runs"]):
        raise ValueError(f"The file {path} is damaged; {remedy}.")
    runs = [{**shared, **run} for run in card["runs"]]
    return [{name: math.nan if x is None else x for name, x in run.items()} for run in runs]


def _different(runs, name):
    """Return the values of an entry of runs, each once."""
    return dict.fromkeys(run[name] for run in runs)
