"""Training: optimizer steps of an encoder-decoder, ours and the peers', in turn."""

from . import requirements
from .card import (
    add_against_argument,
    add_case_argument,
    add_contender_argument,
    card_parser,
    chosen_among,
    execute,
    new_card,
    not_negative,
    those_with,
)
from .harness import (
    Contender,
    beside,
    compare,
    compare_twins,
    measure,
    measure_first_calls,
)

LENGTH = 32
# (size, batch) and the steps of one call, so many that what `fit` does once a call weighs little.
# 128 sentences are a batch as used in practice for the tiny model: 4,096 target tokens.
CASES = {("tiny", 32): 10, ("tiny", 128): 4, ("base", 32): 2}
POLICIES = ("float32", "mixed_bfloat16")
ASKED_OF_HUB = {
    ("tiny", "float32"): 1.3,
    ("tiny", "mixed_bfloat16"): 1.5,
    ("base", "float32"): 1.15,
    ("base", "mixed_bfloat16"): 1.35,
}
ASKED_FIRST_SECONDS = {"tiny": None, "base": 8}
OURS, HUB, TORCH = "keras_attn fit", "KerasHub fit", "torch nn.Transformer"
TARGETS = {
    OURS: f"{__package__}.contenders.ours:training",
    HUB: f"{__package__}.contenders.hub:training",
    TORCH: f"{__package__}.contenders.pytorch:training",
}
METHOD = (
    "Adam (keras_attn with its own, which gives the numbers of Keras's), label smoothing "
    "{smoothing:g}, dropout {dropout:g} (of attention weights too), vocabulary 8,000, one tied "
    f"embedding table, {LENGTH} + {LENGTH} tokens a sentence, padding masks on. Keras models train "
    "under `model.fit` without XLA, torch in an eager loop; bfloat16 is each library's own mixed "
    "precision. A rate counts source and target tokens. Each contender is a process of its own and "
    "all are asked in turn, {repetitions} times."
)


def contenders(size, batch, steps, policy, settings, libraries=tuple(TARGETS)):
    """The libraries' contenders of one size and precision, by name."""
    options = {"size": size, "batch": batch, "length": LENGTH, "steps": steps, "policy": policy}
    return {
        library: Contender(f"{library}, {policy}", TARGETS[library], {**options, **settings})
        for library in libraries
    }


def add_throughput(card, size, batch, settings, repetitions, parts, against=None):
    """Add the table of one size: warm steps in every precision.

    `against` is the folder of another checkout.
    """
    named = {p: contenders(size, batch, CASES[size, batch], p, settings) for p in POLICIES}
    chosen = chosen_among([c for group in named.values() for c in group.values()], parts)
    chosen = beside(chosen, against)
    rows, skipped = measure(chosen, repetitions)
    comparisons = compare_twins(rows, chosen) if against else []
    for policy, group in named.items():
        ours, hub, torch = (group[library].name for library in TARGETS)
        asked_of_torch = 1.0 if policy == "mixed_bfloat16" else None
        comparisons.append(compare(rows, ours, [hub], at_least=ASKED_OF_HUB[size, policy]))
        comparisons.append(compare(rows, ours, [torch], at_least=asked_of_torch))
    group = f"transformer_{size}, batch {batch} x ({LENGTH} + {LENGTH})"
    card.add(group, rows, skipped, comparisons)


def add_first_step(card, size, batch, settings, repetitions, parts, against=None):
    """Add the table of the first step of a fresh process, tracing included."""
    named = contenders(size, batch, 1, "float32", settings, libraries=(OURS, HUB))
    chosen = beside(those_with(parts, named.values()), against)
    if not chosen:
        return
    rows, skipped = measure_first_calls(chosen, repetitions)
    own = named[OURS].name
    comparisons = compare_twins(rows, chosen) if against else []
    comparisons.append(compare(rows, own, [named[HUB].name]))
    if row := requirements.find(rows, own):
        seconds, most = row["median_seconds"], ASKED_FIRST_SECONDS[size]
        statement = f"**{own}**: {seconds:.1f} s"
        comparisons.append(requirements.check(own, statement, seconds, at_most=most))
    group = f"transformer_{size}, first step of a fresh process, tracing included"
    card.add(group, rows, skipped, comparisons)


def main():
    parser = card_parser("training", __doc__, repetitions=7)
    add_case_argument(parser, CASES)
    add_contender_argument(parser)
    add_against_argument(parser)
    add = parser.add_argument
    add("--first-steps", type=not_negative, default=3, help="fresh processes each; 0 for none")
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()
    settings = {"smoothing": arguments.label_smoothing, "dropout": arguments.dropout}
    card = new_card(arguments, "Training throughput", METHOD, "tokens", **settings)
    for case in arguments.cases:
        size, batch = case.split(":")
        print(case, flush=True)
        add_throughput(
            card,
            size,
            int(batch),
            settings,
            arguments.repetitions,
            arguments.contenders,
            arguments.against,
        )
        card.write(arguments.out)
    if arguments.first_steps:
        for size in dict.fromkeys(case.split(":")[0] for case in arguments.cases):
            add_first_step(
                card,
                size,
                32,
                settings,
                arguments.first_steps,
                arguments.contenders,
                arguments.against,
            )
    print(card.write(arguments.out))


if __name__ == "__main__":
    execute(main)
