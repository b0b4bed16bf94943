"""Table 1 of Vaswani et al., measured: how the cost of a layer grows with length and width."""

import dataclasses
import pathlib

from . import curves
from .card import card_parser, execute, new_card, positive
from .contenders.attention_complexity import KERNEL, RESTRICTION
from .harness import Contender, measure

TARGET = f"{__package__}.contenders.attention_complexity"
LENGTHS, WIDTHS = (512, 1024, 2048, 4096), (256, 512, 1024)
# Both sizes are varied around these.
LENGTH, WIDTH = 1024, 512
METHOD = (
    "Milliseconds of one layer, forward, on one sequence of length n and width d, float32, in a "
    "plain graph (`tf.function`, no XLA): n varies at d = {width}, d at n = {length}. Attention is "
    "keras_attn's, in heads of size 64 and without projections, as the paper counts it; restricted "
    f"to r = {RESTRICTION} keys before each query; the recurrent layer is Keras's LSTM, the "
    f"convolution its Conv1D over k = {KERNEL} positions. An exponent p is that of the power law "
    "nearest to the times, by least squares over the logarithms. What a layer spends beside its "
    "products (starting operations, softmax, reading weights) lowers exponents at small sizes: a "
    "recurrent step at width 256 is mostly that. Each size is a process of its own; the sizes of a "
    "layer are asked in turn, {repetitions} times at least 0.15 s."
)


@dataclasses.dataclass(frozen=True)
class Layer:
    """A row of the paper's table: its order, and the exponents of n and d in it."""

    function: str
    order: str
    exponents: tuple


LAYERS = {
    "self-attention": Layer("self_attention", "n² d", (2, 1)),
    "restricted self-attention": Layer("restricted_self_attention", "r n d", (1, 1)),
    "recurrent": Layer("recurrent", "n d²", (1, 2)),
    "convolutional": Layer("convolutional", "k n d²", (1, 2)),
}


def sizes(lengths, widths, length, width):
    """The (n, d) to measure: all lengths at one width, all widths at one length."""
    return sorted({(n, width) for n in (*lengths, length)} | {(length, d) for d in widths})


def contenders(name, all_sizes):
    """One process for each size of a layer, by size."""
    target = f"{TARGET}:{LAYERS[name].function}"
    return {
        (n, d): Contender(f"{name}, n {n:,}, d {d:,}", target, {"length": n, "width": d})
        for n, d in all_sizes
    }


def curves_of(seconds, length, width):
    """Points over n and over d, of a dict of (n, d) to seconds."""
    over_length = {n: t for (n, d), t in seconds.items() if d == width}
    over_width = {d: t for (n, d), t in seconds.items() if n == length}
    return over_length, over_width


def paper_table(measured):
    """Markdown: the paper's orders beside fitted exponents.

    `measured` is a dict of a layer's name to its points over n and its points over d.
    """
    lines = [
        "| layer | order in the paper | n: paper | n: measured | d: paper | d: measured |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for name, points in measured.items():
        layer = LAYERS[name]
        fitted = [f"{curves.exponent(p):.2f}" if len(p) > 1 else "-" for p in points]
        pairs = zip(layer.exponents, fitted, strict=True)
        cells = " | ".join(f"{paper} | {fit}" for paper, fit in pairs)
        lines.append(f"| {name} | {layer.order} | {cells} |")
    return lines


def draw(measured, length, width, path):
    """Draw all layers, over n and over d."""
    over_length, over_width = zip(*measured.values(), strict=True)
    panels = {
        (f"width {width:,}", "length n"): dict(zip(measured, over_length, strict=True)),
        (f"length {length:,}", "width d"): dict(zip(measured, over_width, strict=True)),
    }
    curves.draw(panels, path)


def main():
    parser = card_parser("complexity", __doc__, repetitions=3)
    parser.add_argument("--cases", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--lengths", nargs="+", type=positive, default=LENGTHS)
    parser.add_argument(
        "--widths", nargs="+", type=positive, default=WIDTHS, help="multiples of 64"
    )
    parser.add_argument("--length", type=positive, default=LENGTH, help="at which the width varies")
    parser.add_argument("--width", type=positive, default=WIDTH, help="at which the length varies")
    arguments = parser.parse_args()
    length, width = arguments.length, arguments.width
    card = new_card(arguments, "Table 1 of Vaswani et al., measured", METHOD)
    picture = pathlib.Path(arguments.out) / f"{arguments.name}.png"
    measured = {}
    for name in arguments.cases:
        print(name, flush=True)
        by_size = contenders(name, sizes(arguments.lengths, arguments.widths, length, width))
        rows, skipped = measure(list(by_size.values()), arguments.repetitions)
        card.add(name, rows, skipped)
        times = {row["name"]: row["median_seconds"] for row in rows}
        seconds = {size: times[c.name] for size, c in by_size.items() if c.name in times}
        measured[name] = curves_of(seconds, length, width)
        card.headline(*paper_table(measured), "", f"![Milliseconds over n and d]({picture.name})")
        card.write(arguments.out)
        draw(measured, length, width, picture)
    print(card.markdown())


if __name__ == "__main__":
    execute(main)
