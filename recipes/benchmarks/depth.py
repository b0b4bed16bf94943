"""Depth in little memory: recomputed and reversible stacks, mixed precision, a plain stack."""

import pathlib

from . import curves, requirements
from .card import card_parser, execute, new_card, positive
from .harness import Contender, measure

TARGET = f"{__package__}.contenders.gradient:stack_step"
KINDS = ("plain", "remat", "reversible")
POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")
LAYERS = (2, 8, 24)
MEMORY = {"batch": 1, "length": 4096, "width": 256, "implementation": "blockwise"}
TIME = {"num_layers": 6, "batch": 8, "length": 512, "width": 512}
METHOD = (
    "A training step of pre-norm blocks (causal attention, feed-forward, dropout 0.1) in a plain "
    "graph (`tf.function`, no XLA): the gradient by all weights, each of which is summed up and "
    "let go at once. **plain** is `Stack`, **remat** is `Stack(remat=True)`, **reversible** is "
    "`Reversible`, whose streams stay float32. Weights are float32 under any dtype policy, and no "
    "loss is scaled; the policy is float32 where none is named. Each contender is a process of its "
    "own. **MB of activations** is the most that TensorFlow's allocator gives out for tensors in a "
    "step, less what it held before: weights, graph and compiled kernels do not count. Times are "
    "those of {repetitions} turns."
)
COLUMNS = {
    "MB of activations": lambda row: f"{row['facts']['tensors_mb']:.0f}",
}


def contender(kind, num_layers, policy="float32", **options):
    named = "" if policy == "float32" else f", {policy}"
    options |= {"kind": kind, "num_layers": num_layers, "policy": policy}
    return Contender(f"{kind}, {num_layers} layers{named}", TARGET, options)


def add_memory(card, layers, picture):
    """Add the table of memory over depth, and its requirements."""
    chosen = [contender(kind, count, **MEMORY) for kind in KINDS for count in layers]
    rows, skipped = measure(chosen, repetitions=1)
    by_kind = {
        kind: {
            count: row["facts"]["tensors_mb"]
            for count in layers
            if (row := requirements.find(rows, f"{kind}, {count} layers"))
        }
        for kind in KINDS
    }
    comparisons = [
        requirements.memory_growth(rows, f"{kind}, 24 layers", f"{kind}, 2 layers", at_most)
        for kind, at_most in zip(KINDS, (None, None, 1.25), strict=True)
    ]
    comparisons += [_exponent(kind, points) for kind, points in by_kind.items()]
    size = f"{MEMORY['batch']} x {MEMORY['length']:,} positions, width {MEMORY['width']}"
    card.add(f"Memory, {size}", rows, skipped, comparisons)
    panel = (f"activations, {size}", "layers")
    curves.draw({panel: by_kind}, picture, bold="reversible", label="MB", factor=1)
    card.headline(f"![Memory over layers]({picture.name})")


def _exponent(kind, points):
    """Return the power of the number of layers that the memory grows with; 0.5 is required."""
    if len(points) < 2:
        return None
    power = curves.exponent(points)
    statement = f"Memory of **{kind}** grows with the number of layers to the power {power:.2f}"
    return requirements.check(kind, statement, power, at_most=0.5 if kind == "remat" else None)


def add_time(card, sizes, policies, repetitions):
    """Add the table of step times and memory at one depth, and its requirements."""
    chosen = [contender(kind, policy=policy, **sizes) for policy in policies for kind in KINDS]
    rows, skipped = measure(chosen, repetitions)
    plain, _, reversible = (contender(kind, **sizes).name for kind in KINDS)
    comparisons = []
    for other in chosen:
        if other.name != plain:
            at_most = 1.6 if other.name == reversible else None
            comparisons.append(requirements.growth(rows, other.name, plain, at_most))
            comparisons.append(requirements.memory_growth(rows, other.name, plain))
    size = f"{sizes['batch']} x {sizes['length']} positions, width {sizes['width']}"
    card.add(f"Step time and memory, {size}", rows, skipped, comparisons)


def main():
    parser = card_parser("depth", __doc__, repetitions=5)
    parser.add_argument(
        "--layers", nargs="*", type=positive, default=LAYERS, help="of the memory table"
    )
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    for name, value in TIME.items():
        text = f"of the table of step times, by default {value}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=positive, default=value, help=text)
    arguments = parser.parse_args()
    card = new_card(arguments, "Depth in little memory", METHOD, "positions", COLUMNS)
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {name: getattr(arguments, name) for name in TIME}
    add_time(card, sizes, arguments.policies, arguments.repetitions)
    card.write(folder)
    if arguments.layers:
        add_memory(card, arguments.layers, folder / f"{arguments.name}.png")
    print(card.write(folder))


if __name__ == "__main__":
    execute(main)
