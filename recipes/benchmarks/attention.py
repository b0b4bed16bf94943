"""Attention over long sequences: time, share of the GEMM rate and memory, ours and the peers'."""

import argparse
import collections
import pathlib

from ..common.machine import restrict_cores
from . import curves, operations, requirements
from .attention_cases import KINDS, MODULE, OURS, is_image
from .card import (
    add_against_argument,
    add_contender_argument,
    add_cores_argument,
    card_parser,
    chosen_among,
    execute,
    new_card,
    those_with,
)
from .harness import Contender, Worker, beside, compare_twins, measure

CASES = (
    "dense:2048 dense:8192 causal:512 causal:2048 causal:8192 layer:2048 layer:4096 "
    "local:4096 local:16384 local:32768 lsh:16384 sparse:16384 growth:4096 long:65536"
).split()
GEMM = Contender("GEMM", f"{MODULE}.attention_tensorflow:gemm")
GEMM_SECONDS = 0.05
METHOD = (
    f"Attention of one sequence, {operations.HEADS} heads of size {operations.HEAD_DIM}, float32, "
    "random inputs. keras_attn, Keras and KerasHub in a plain graph (`tf.function`, no XLA). "
    "Without projections, unless a table says layer. Each contender is a process of its own and "
    "all are asked in turn, {repetitions} times at least 0.15 s. **GF/s** counts the operations "
    "that the pattern needs: four per allowed pair of a query and a key and per unit of head size, "
    "three times as many with the backward pass; LSH counts its chunks whole. **of GEMM** is that "
    "over the rate of a float32 matrix product, 2048 x 512 x 2048, in TensorFlow (probe GF/s), "
    "just before and after. **MB over inputs** is the peak memory of the process, tracing and "
    "compiling included, less what it held before its first call."
)
COLUMNS = {
    "of GEMM": lambda row: f"{requirements.rate_share(row, row['units']):.2f}",
    "MB over inputs": lambda row: "-" if row["memory_mb"] is None else f"{row['memory_mb']:.0f}",
}


class Picture:
    """Picture of seconds over length so far, in panels, drawn to the PNG file `path`."""

    def __init__(self, path):
        self.path = path
        self.panels = collections.defaultdict(lambda: collections.defaultdict(dict))

    def add(self, group, rows):
        """Draw all again with the rows of a group that has a panel."""
        if not group.panel or not rows:
            return
        lengths = {c.name: c.options["length"] for c in group.contenders}
        panel = self.panels[f"{group.panel}, forward", "positions"]
        for row in rows:
            name = row["name"].partition(" at ")[0]
            panel[name][lengths[row["name"]]] = row["median_seconds"]
        curves.draw(self.panels, self.path, bold=OURS)


def run(cases, card, folder, repetitions, only=("",), against=None):
    """Measure cases, and write the card and its picture into a folder after each table.

    A case is a kind (`KINDS`) and a length. Contenders run whose name contains one of `only`, and
    tables without one are left out. `against` is the folder of another checkout.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    picture = Picture(folder / f"{card.name}.png")
    groups = [group for kind, length in cases for group in KINDS[kind](length)]
    chosen_among([contender for group in groups for contender in group.contenders], only)
    gemm = Worker(GEMM, GEMM_SECONDS)
    try:
        for group in groups:
            chosen = beside(those_with(only, group.contenders), against)
            if not chosen:
                continue
            print(group.title, flush=True)
            rows, skipped = measure(chosen, repetitions, gemm_rate=lambda: rate_of(gemm))
            if against:
                comparisons = compare_twins(rows, chosen)
            else:
                comparisons = [asked(rows) for asked in group.demands]
                picture.add(group, rows)
            card.add(group.title, rows, skipped, comparisons)
            card.headline(*headline(card, picture))
            card.write(folder)
    finally:
        gemm.stop()


def rate_of(gemm):
    """Measure the GF/s of the matrix product."""
    if gemm.skipped:
        raise RuntimeError(f"The matrix product cannot be timed: {gemm.skipped}.")
    return gemm.report["units"] / gemm.repeat()["seconds"]


def headline(card, picture):
    """Return the number of requirements that are met, and the picture."""
    groups = card.content["groups"]
    asked = [c for group in groups for c in group["comparisons"] if c["met"] is not None]
    met = sum(comparison["met"] for comparison in asked)
    lines = [f"Of {len(asked)} requirements, {met} are met; each is below its table."]
    if picture.panels:
        lines += ["", f"![Milliseconds over positions]({picture.path.name})"]
    return lines


def parse_case(text):
    """`KIND:LENGTH` as a pair, or raise an error for argparse."""
    kind, _, length = text.partition(":")
    if kind not in KINDS or not length.isdecimal() or int(length) < 1:
        must = f"must be KIND:LENGTH with a kind among {', '.join(KINDS)}"
        raise argparse.ArgumentTypeError(f"{must}. Received: {text!r}.")
    if kind == "growth" and not is_image(int(length)):
        must = "must have the square of a multiple of 16 as LENGTH of growth, such as 4096"
        raise argparse.ArgumentTypeError(f"{must}. Received: {text!r}.")
    return kind, int(length)


def main():
    parser = card_parser("attention", __doc__, repetitions=5)
    cases = {"default": [parse_case(case) for case in CASES], "help": f"default: {' '.join(CASES)}"}
    parser.add_argument("--cases", nargs="+", type=parse_case, metavar="KIND:LENGTH", **cases)
    add_contender_argument(parser)
    add_against_argument(parser)
    add_cores_argument(parser)
    arguments = parser.parse_args()
    restrict_cores(arguments.cores)
    card = new_card(arguments, "Attention that scales", METHOD, "GF", COLUMNS)
    run(
        arguments.cases,
        card,
        arguments.out,
        arguments.repetitions,
        arguments.contenders,
        arguments.against,
    )
    print(card.markdown())


if __name__ == "__main__":
    execute(main)
