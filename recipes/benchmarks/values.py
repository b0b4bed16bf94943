"""Cost of the values of each axis, beside the plainest value of that axis."""

import argparse
import dataclasses
from functools import partial

from . import requirements
from .card import card_parser, cell, execute, new_card, positive
from .harness import Contender, measure

MODULE = f"{__package__}.contenders.layers"
WIDTH = 128
METHOD = (
    f"A layer of width {WIDTH} on one sequence, float32, random inputs, in a plain graph "
    "(`tf.function`; with XLA where a table says so). **step** has the backward pass too, in "
    "training. Each row is the expression of the table's title with its own value; every contender "
    "is a process of its own, and all are asked in turn, {repetitions} times at least 0.15 s."
)


@dataclasses.dataclass(frozen=True)
class Axis:
    """Values of one axis.

    Args:
        layer: string. Expression of a layer, with `{}` for the value.
        plain: string. The value that others are compared with.
        values: dict of string to a greatest cost of a step relative to `plain`, or None.
        lengths: tuple of int. Positions.
        asked_at: int. Number of positions for which the greatest cost holds.
        jit_compile: bool. True for XLA.
    """

    layer: str
    plain: str
    values: dict
    lengths: tuple = (2048, 16384)
    asked_at: int = 2048
    jit_compile: bool = False


EXPERTS = {"MixtureOfExperts(FeedForward(256), 8, top_k=2)": 1.5}
ALL_EXPERTS = "every expert at each position"
AXES = {
    "score": Axis(
        "MultiHeadAttention(4, 32, score={}, pattern=Causal(), implementation='blockwise')",
        "DotProduct()",
        {
            "DotProduct() + ALiBi()": None,
            "DotProduct() + T5Bias()": 1.6,
            "SoftCap(DotProduct(), 50.0)": None,
            "Relative()": None,
            "LearnedRelative(16)": None,
            "Disentangled()": None,
            "Cosine()": None,
            "Kernel()": None,
            "FAVOR()": None,
        },
    ),
    "layer": Axis(
        "{}",
        "MultiHeadAttention(4, 32, pattern='causal')",
        {
            "MultiHeadAttention(4, 32, pattern='causal', qk_norm='rms_norm')": None,
            "MultiHeadAttention(4, 32, pattern='causal', sinks=True)": None,
            "MultiHeadAttention(4, 32, pattern='causal', use_gate=True)": None,
            "DifferentialAttention(4, 32, layer_index=3, pattern='causal')": None,
        },
    ),
    "pattern": Axis(
        "MultiHeadAttention(4, 32, pattern={}, implementation='blockwise')",
        "Local(129, causal=False)",
        {"Local(129)": None, "Local(129, causal=False) | Global(16)": 1.6, "Dilated(129, 4)": None},
        asked_at=16384,
    ),
    "causal_pattern": Axis(
        "MultiHeadAttention(4, 32, pattern={}, implementation='blockwise')",
        "Local(129)",
        {
            "Local(129) | Global(16, causal=True)": 1.6,
            "Sinks(16, 129)": None,
            "Local(129) | Random(64, 3, 16384, causal=True)": None,
        },
        asked_at=16384,
    ),
    "position": Axis(
        "MultiHeadAttention(4, 32, pattern=Local(128), position={})",
        "None",
        {"Rotary()": None, "Rotary(layout='half')": None},
    ),
    "norm": Axis("{}", "LayerNorm()", {"RMSNorm()": None, "DyT()": None}),
    "residual": Axis(
        "TransformerBlock(MultiHeadAttention(4, 32, pattern=Local(128)), FeedForward(512), "
        "residual={})",
        "PostNorm()",
        {
            "PreNorm()": None,
            "OutputNorm()": None,
            "SandwichNorm()": None,
            "ReZero()": None,
            "LayerScale()": None,
            "DeepNorm(6)": None,
            "Gate()": None,
        },
    ),
    "feed_forward": Axis(
        "{}", "FeedForward(512)", {"GatedFeedForward(341)": None, **EXPERTS, ALL_EXPERTS: None}
    ),
    "feed_forward_xla": Axis(
        "{}",
        "FeedForward(512)",
        {**dict.fromkeys(EXPERTS, 2.0), ALL_EXPERTS: None},
        jit_compile=True,
    ),
}


def contender(axis, value, length, backward):
    """Return the contender of a value."""
    target = "step"
    expression = axis.layer.format(value)
    if value == ALL_EXPERTS:
        target, (expression,) = "all_experts", EXPERTS
    options = {"expression": expression, "length": length, "width": WIDTH}
    options |= {"backward": backward, "jit_compile": axis.jit_compile}
    return Contender(value, f"{MODULE}:{target}", options)


def comparisons(axis, rows, length, backward):
    """Return the cost of each value relative to the plain one."""
    is_asked = backward and length == axis.asked_at
    for value, at_most in axis.values.items():
        bound = at_most if is_asked else None
        yield requirements.growth(rows, value, axis.plain, at_most=bound)


def cost_table(axis, costs):
    """Return the lines of a table of `costs`, a dict of column to a dict of value to cost."""
    lines = [f"| beside `{axis.plain}` | {' | '.join(costs)} |", "| --- |" + " --: |" * len(costs)]
    for value in axis.values:
        cells = [f"{cost[value]:.2f}" if value in cost else "" for cost in costs.values()]
        lines.append(f"| `{cell(value)}` | {' | '.join(cells)} |")
    return lines


def measure_axis(name, arguments):
    """Measure an axis, and write its card after each table."""
    axis, costs = AXES[name], {}
    arguments = argparse.Namespace(**{**vars(arguments), "name": f"{arguments.name}_{name}"})
    xla = ", by XLA" if axis.jit_compile else ""
    title = f"Cost of the values of the axis: {name}{xla}"
    card = new_card(arguments, title, METHOD, "positions")
    for length in arguments.lengths or axis.lengths:
        for backward, direction in enumerate(("forward", "step")):
            column = f"{direction}, {length:,} positions"
            print(f"{name}: {column}", flush=True)
            make = partial(contender, axis, length=length, backward=bool(backward))
            chosen = [make(value) for value in (axis.plain, *axis.values)]
            rows, skipped = measure(chosen, arguments.repetitions)
            compared = [c for c in comparisons(axis, rows, length, backward) if c]
            costs[column] = {c["name"]: c["value"] for c in compared}
            card.add(f"{column}: `{axis.layer}`", rows, skipped, compared)
            card.headline(*cost_table(axis, costs))
            card.write(arguments.out)
    return card.markdown()


def main():
    parser = card_parser("values", __doc__, repetitions=5)
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--lengths", nargs="+", type=positive, help="default: those of the axis")
    arguments = parser.parse_args()
    for name in arguments.axes:
        print(measure_axis(name, arguments))


if __name__ == "__main__":
    execute(main)
