"""The card of a benchmark: command, hardware and results, as JSON and Markdown."""

import argparse
import datetime
import pathlib
import sys

from ..common import cli, files
from ..common.machine import command_line, commit, hardware

CARDS = pathlib.Path(__file__).parent / "cards"


def card_parser(name, description, repetitions=None):
    """Return an argument parser with the options of every benchmark.

    The benchmark's module has the name of its card. Without a number of repetitions it has no
    option for it.
    """
    program = f"python -m {__package__}.{name}"
    parser = argparse.ArgumentParser(prog=program, description=description)
    if repetitions:
        parser.add_argument("--repetitions", type=positive, default=repetitions)
    parser.add_argument("--name", default=name, help="name of the card")
    parser.add_argument("--out", default=CARDS, help="folder of the card")
    return parser


def positive(text):
    """Read a positive integer, or raise an error for argparse."""
    return _integer(text, "a positive integer", least=1)


def not_negative(text):
    """Read an integer of at least 0, or raise an error for argparse."""
    return _integer(text, "an integer of at least 0", least=0)


def _integer(text, kind, least):
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{kind} is expected. Received: {text}")
    return int(text)


def execute(main):
    """End the program with the exit code of `main`, or with a sentence and 2 after bad input."""
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"{main.__globals__['__spec__'].name}: {cli.sentence(error)}", file=sys.stderr)
        sys.exit(cli.EXIT_USAGE)


def add_case_argument(parser, cases):
    """Add the option to run some of `cases`, a size and a batch each, as SIZE:BATCH."""
    known = [f"{size}:{batch}" for size, batch in cases]
    parser.add_argument("--cases", nargs="+", choices=known, default=known, help="size:batch")


def add_contender_argument(parser):
    """Add the option to run some contenders."""
    what = "only those whose name contains one of these"
    parser.add_argument("--contenders", nargs="+", default=("",), help=what)


def add_against_argument(parser):
    """Add the option to time another checkout's keras_attn beside this one's, without peers."""
    what = "time keras_attn of the checkout in this folder beside this one's, and no other library"
    parser.add_argument("--against", type=checkout, metavar="FOLDER", help=what)


def add_cores_argument(parser):
    """Add the option to run all contenders on some of the cores, by `restrict_cores`."""
    what = "run all contenders on so many of the cores; default: on all"
    parser.add_argument("--cores", type=positive, help=what)


def checkout(text):
    """Read the folder of a checkout with benchmarks, or raise an error for argparse."""
    folder = pathlib.Path(text).resolve()
    if not (folder / "recipes" / "benchmarks" / "worker.py").is_file():
        must = "must be the folder of a checkout of keras_attn with recipes/benchmarks"
        raise argparse.ArgumentTypeError(f"{must}. Received: {text!r}.")
    return str(folder)


def chosen_among(contenders, parts):
    """Return the contenders with one of the `parts` in their names; end the program if none is."""
    chosen = those_with(parts, contenders)
    if not chosen:
        names = ", ".join(contender.name for contender in contenders)
        raise SystemExit(f"--contenders must be parts of these names: {names}. Received: {parts}")
    return chosen


def those_with(parts, contenders):
    """Return the contenders with one of the `parts` in their names."""
    return [contender for contender in contenders if any(p in contender.name for p in parts)]


def new_card(arguments, title, method, unit="calls", columns=None, **facts):
    """Return the `Card` of a command line, whose arguments and `facts` fill in the method.

    A card of two checkouts has a name of its own, so that it replaces no card of peers.
    """
    method, name = method.format(**{**vars(arguments), **facts}), arguments.name
    folder = getattr(arguments, "against", None)
    if folder is not None:
        name = f"{name}_against"
        other = pathlib.Path(folder).name
        method += (
            f" A contender whose name ends in `{other}` runs the code of another checkout"
            f"{commit(folder)}; no other library runs."
        )
    return Card(name, title, method, unit, columns)


class Card:
    """Tables and comparisons, written to `NAME.json` and `NAME.md`.

    Args:
        name: string. File name without ending.
        title: string. Heading.
        method: string. Description of the measurement.
        unit: string. The unit of `units_per_second` of a row.
        columns: dict of heading to a function of a row that returns text: further columns.
    """

    def __init__(self, name, title, method, unit="calls", columns=None):
        self.name = name
        self.columns = columns or {}
        self.content = {
            "title": title,
            "method": method,
            "unit": unit,
            "command": command_line(),
            "date": datetime.date.today().isoformat(),
            "hardware": hardware(),
            "versions": {},
            "headline": [],
            "groups": [],
        }

    def add(self, group, rows, skipped=None, comparisons=()):
        """Add one table."""
        for row in rows:
            self.content["versions"].update(row.pop("versions", {}))
        table = {"name": group, "rows": rows, "skipped": skipped or {}}
        self.content["groups"].append({**table, "comparisons": [c for c in comparisons if c]})

    def headline(self, *lines):
        """Set the lines of Markdown before the tables: the main results."""
        self.content["headline"] = list(lines)

    def write(self, folder=CARDS):
        """Write both files, and return the Markdown.

        A card whose contenders all failed replaces no other one: it is not written.
        """
        text, groups = self.markdown(), self.content["groups"]
        if groups and not any(group["rows"] for group in groups):
            print(f"{self.name}: no contender has run so far, no card is written.", file=sys.stderr)
            return text
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files.write_json(folder / f"{self.name}.json", self.content)
        files.write(folder / f"{self.name}.md", text)
        return text

    def markdown(self):
        content = self.content
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        lines = [
            f"# {content['title']}",
            "",
            content["method"],
            "",
            f"- Command: `{content['command']}`",
            f"- Date: {content['date']}",
            f"- Hardware: {content['hardware']}",
            f"- Versions: {versions}",
        ]
        if content["headline"]:
            lines += ["", *content["headline"]]
        for group in content["groups"]:
            lines += ["", f"## {group['name']}", ""]
            lines += table(group["rows"], content["unit"], self.columns)
            lines += ["", *(f"- {sentence(c)}" for c in group["comparisons"])]
            skipped = group["skipped"].items()
            lines += [missing(name, why) for name, why in skipped]
        return "\n".join(lines).rstrip() + "\n"


def table(rows, unit, columns):
    """Return a Markdown table of the rows of a group, fastest first."""
    lines = [
        f"| contender | median ms | {unit}/s | min to max ms | CPU ms | build + first call s "
        "| peak MB | probe GF/s |" + "".join(f" {heading} |" for heading in columns),
        "| --- | --: | --: | --: | --: | --: | --: | --: |" + " --: |" * len(columns),
    ]
    for row in sorted(rows, key=lambda row: row["median_seconds"]):
        low, high = 1e3 * min(row["seconds"]), 1e3 * max(row["seconds"])
        lines.append(
            f"| {cell(row['name'])} | {1e3 * row['median_seconds']:.1f} "
            f"| {row['units_per_second']:.0f} "
            f"| {low:.1f} to {high:.1f} | {1e3 * row['cpu_seconds']:.1f} "
            f"| {row['build_seconds']:.1f} + {row['first_call']['seconds']:.1f} "
            f"| {row['peak_mb']:.0f} | {row['probe_gflops']:.0f} |"
            + "".join(f" {text(row)} |" for text in columns.values())
        )
    return lines


def cell(text):
    """Return a text for a cell of a Markdown table, which a "|" would end."""
    return text.replace("|", r"\|")


def missing(name, why):
    """Return the line of a contender that could not run."""
    return f"- {name} is not in the table: {why}."


def sentence(comparison):
    """Return a comparison or another requirement as a sentence."""
    text = comparison.get("statement") or (
        f"**{comparison['name']}** is {comparison['ratio']:.2f} times as fast as "
        f"{comparison['peer']}"
    )
    for bound in ("at_least", "at_most"):
        if comparison.get(bound) is not None:
            verdict = "met" if comparison["met"] else "not met"
            text += f" ({bound.replace('_', ' ')} {comparison[bound]:g} is asked: {verdict})"
    return text + "."
