"""The card of a benchmark: command, hardware and results, as JSON and Markdown."""

import argparse
import datetime
import json
import pathlib

from ..provenance import command_line, hardware

CARDS = pathlib.Path(__file__).parent / "cards"


def card_parser(name, description, repetitions):
    """Return an argument parser with the options of every benchmark.

    The benchmark's module has the name of its card.
    """
    program = f"python -m {__package__}.{name}"
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--name", default=name, help="name of the card")
    parser.add_argument("--out", default=CARDS, help="folder of the card")
    return parser


def add_case_argument(parser, cases):
    """Add the option to run some of `cases`, a size and a batch each, as SIZE:BATCH."""
    known = [f"{size}:{batch}" for size, batch in cases]
    parser.add_argument("--cases", nargs="+", choices=known, default=known, help="size:batch")


def new_card(arguments, title, method, unit="calls", columns=None, **facts):
    """Return the `Card` of a command line, whose arguments and `facts` fill in the method."""
    method = method.format(**{**vars(arguments), **facts})
    return Card(arguments.name, title, method, unit, columns)


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
        """Write both files, and return the Markdown."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = self.markdown()
        (folder / f"{self.name}.json").write_text(json.dumps(self.content, indent=1) + "\n")
        (folder / f"{self.name}.md").write_text(text)
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
            lines += [f"- {name} is not in the table: {why}." for name, why in skipped]
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
            f"| {row['name']} | {1e3 * row['median_seconds']:.1f} | {row['units_per_second']:.0f} "
            f"| {low:.1f} to {high:.1f} | {1e3 * row['cpu_seconds']:.1f} "
            f"| {row['build_seconds']:.1f} + {row['first_call']['seconds']:.1f} "
            f"| {row['peak_mb']:.0f} | {row['probe_gflops']:.0f} |"
            + "".join(f" {text(row)} |" for text in columns.values())
        )
    return lines


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
