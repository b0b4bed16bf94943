"""Peak memory of training steps, beside what `keras_attn.explain` predicts."""

from .card import card_parser, execute, missing, new_card
from .contenders.memory import build
from .harness import Contender, Worker, announce

TARGET = f"{__package__}.contenders.memory:training_step"
CASES = {
    "dense": {"kind": "stack", "length": 1024, "batch": 4, "implementation": "dense"},
    "causal, by tiles": {"kind": "stack", "length": 2048, "batch": 4},
    "local, window 128": {"kind": "stack", "length": 4096, "batch": 4, "window": 128},
    "remat, 8 layers": {"kind": "remat", "length": 2048, "batch": 8, "num_layers": 8},
    "reversible, 8 layers": {"kind": "reversible", "length": 2048, "batch": 8, "num_layers": 8},
    "transformer_xl, memory 512": {
        "kind": "transformer_xl",
        "length": 512,
        "batch": 8,
        "memory_length": 512,
    },
    "causal, mixed_bfloat16": {
        "kind": "stack",
        "length": 1024,
        "batch": 8,
        "policy": "mixed_bfloat16",
    },
    "transformer": {"kind": "transformer", "length": 512, "batch": 8},
}
METHOD = (
    "A training step of Adam on a crossentropy, 4 layers of width 256 with 4 heads and 256 tokens, "
    "no dropout, in a TensorFlow graph without XLA, on a CPU; each case is a process of its own. "
    "**Measured** is the most that TensorFlow's allocator gave out for tensors in three steps, "
    "weights and optimizer included. **Predicted** is "
    "`keras_attn.explain(model, length, batch).memory.training`. **Process** is the peak resident "
    "memory, less what the process held before it made the model: it has the graph, its compiled "
    "kernels and gaps between tensors besides, which are not predicted."
)
MB = 10**6
WITHIN = 0.25


def main():
    parser = card_parser("memory", __doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    card = new_card(arguments, "Memory of a training step, predicted", METHOD)
    rows, skipped = [], []
    for name in arguments.cases:
        worker = Worker(Contender(name, TARGET, CASES[name]))
        worker.stop()
        announce(worker, print)
        if worker.skipped:
            skipped.append(missing(name, worker.skipped))
        else:
            rows.append((name, *measured(worker.report), predicted(**CASES[name])))
            card.content["versions"].update(worker.report["versions"])
        card.content["cases"] = rows
        card.headline(*table(rows), "", *skipped)
        if rows:
            card.write(arguments.out)
    print(card.markdown())


def measured(report):
    """Return the MB of a contender's tensors, and of its process."""
    facts = report["facts"]
    return facts["tensors_mb"], report["first_call"]["peak_mb"] - facts["base_mb"]


def predicted(length, batch, **options):
    """Return the MB that `explain` predicts for a case."""
    from keras_attn import explain

    return explain(build(**options), length, batch).memory.training / MB


def table(rows):
    """Return the Markdown lines of (case, measured, process, predicted)."""
    heads = ["case", "length x batch", "measured MB", "predicted MB", "predicted / measured"]
    lines = [f"| {' | '.join([*heads, 'process MB'])} |", "| --- |" + " --: |" * len(heads)]
    for name, measured, process, expected in rows:
        size = f"{CASES[name]['length']:,} x {CASES[name]['batch']}"
        numbers = f"{measured:.0f} | {expected:.0f} | {expected / measured:.2f} | {process:.0f}"
        lines.append(f"| {name} | {size} | {numbers} |")
    close = sum(abs(expected / measured - 1) <= WITHIN for _, measured, _, expected in rows)
    many = f"{close} of {len(rows)} predictions are within {WITHIN:.0%} of the measurement."
    return [*lines, "", many]


if __name__ == "__main__":
    execute(main)
