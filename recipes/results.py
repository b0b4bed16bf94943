"""Table of the cards of several runs, and their curves in one picture."""

import argparse
import json
import os
import sys
from pathlib import Path

from .common.cli import fail, sentence
from .common.progress import first_result, result

COLUMNS = ("run", "task", "parameters", "steps", "minutes", "result", "command")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="keras-attn results",
        description="Prints a table of finished runs, a row for each card.",
    )
    add = parser.add_argument
    add("cards", nargs="+", metavar="CARD", help="a run's card.json")
    add("--curves", metavar="PNG", help="draws the curves of a metric of all runs")
    add("--metric", help="of the curves (default: the validation's of the first result)")
    options = parser.parse_args(arguments)
    try:
        cards = {name_of(path, options.cards): read(path) for path in options.cards}
        print("\n".join(table(cards)))
        if options.curves:
            draw(cards, options.curves, options.metric)
    except (OSError, ValueError, ImportError) as error:
        return fail("recipes.results", sentence(error))
    return 0


def name_of(path, paths=()):
    """Return the card's own name, or its run's directory.

    As many parents are added as make it unique among `paths`, the cards of the table.
    """
    own = _parts(path)
    others = [_parts(other) for other in paths if os.path.abspath(other) != os.path.abspath(path)]
    for length in range(1, len(own) + 1):
        if all(other[-length:] != own[-length:] for other in others):
            return os.path.join(*own[-length:])
    return path  # "run/card.json" beside "run.json"


def _parts(path):
    """Return the parts of a path that name the card, from the root on."""
    path = Path(os.path.abspath(path))
    return (path.parent if path.name == "card.json" else path.with_suffix("")).parts


def read(path):
    """Return the card in a file; a file without one is a `ValueError`."""
    with open(path, encoding="utf-8") as file:
        try:
            card = json.load(file)
            row("", card), card["history"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not the card of a finished run.") from error
    return card


def row(name, card):
    """Return the row of a card: a string for each column."""
    return (
        name,
        card["task"],
        f"{card['parameters']:,}",
        f"{card['steps']:,}",
        f"{card['training_seconds'] / 60:.0f}",
        result(card),
        f"`{card['command']}`".replace("|", "\\|"),
    )


def table(cards):
    """Return a Markdown table of cards by name."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(row(name, card) for name, card in cards.items())]
    return [f"| {' | '.join(cells)} |" for cells in rows]


def draw(cards, path, metric=None):
    """Draw a metric, which each run must have recorded, over the epochs of several runs.

    There is no point at an epoch whose metric is missing or no number.
    """
    from .common.plots import draw_curves  # imports Keras, which --help and the table do not need

    if metric is None:
        metric = f"val_{first_result(next(iter(cards.values())))['metric']}"
    curves = {name: [row.get(metric) for row in card["history"]] for name, card in cards.items()}
    lacking = [name for name, values in curves.items() if all(x is None for x in values)]
    if lacking:
        raise ValueError(f"There is no {metric} in any epoch of {', '.join(lacking)}.")
    draw_curves(path, curves, metric.replace("_", " "))


if __name__ == "__main__":
    sys.exit(main())
