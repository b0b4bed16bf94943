"""Training on two replicas that share the cores, beside one device at the same global batch."""

from . import requirements
from .card import add_case_argument, card_parser, execute, new_card
from .harness import Contender, measure

TARGET = f"{__package__}.contenders.replicas:training"
LENGTH = 32
# (size, rows of the global batch) and the steps of one call.
CASES = {("tiny", 64): 16, ("base", 64): 3}
# Two replicas run the operations of a step twice, each on half of the rows, add up the gradients,
# and write the weights and the optimizer's state twice.
AT_MOST = 1.15
KINDS = {"one device": ("none", 1), "two replicas": ("mirrored", 2)}
METHOD = (
    "Optimizer steps of an encoder-decoder under `model.fit`, float32 without XLA: Adam, label "
    f"smoothing 0.1, dropout 0.1, vocabulary 8,000, {LENGTH} + {LENGTH} tokens a sentence. **one "
    "device** is `--strategy none`; **two replicas** is `--strategy mirrored` on two logical CPU "
    "devices of the same machine, which share its cores, at the same global batch: there is "
    "nothing to gain, and the ratio is what sharing out costs. Each is a process of its own and "
    "both are asked in turn, {repetitions} times."
)


def contenders(size, batch):
    """The contenders of one size, one device first."""
    work = {"size": size, "batch": batch, "length": LENGTH, "steps": CASES[size, batch]}
    return [
        Contender(f"{name}, {size}", TARGET, {"strategy": strategy, "devices": devices, **work})
        for name, (strategy, devices) in KINDS.items()
    ]


def add_steps(card, size, batch, repetitions):
    """Add the table of one size."""
    alone, together = contenders(size, batch)
    rows, skipped = measure([alone, together], repetitions)
    comparison = requirements.growth(rows, together.name, alone.name, at_most=AT_MOST)
    group = f"transformer_{size}, batch {batch} x ({LENGTH} + {LENGTH})"
    card.add(group, rows, skipped, [comparison])


def main():
    parser = card_parser("replicas", __doc__, repetitions=7)
    add_case_argument(parser, CASES)
    arguments = parser.parse_args()
    card = new_card(arguments, "Replicas that share the cores", METHOD, "tokens")
    for case in arguments.cases:
        size, batch = case.split(":")
        add_steps(card, size, int(batch), arguments.repetitions)
        text = card.write(arguments.out)
    print(text)


if __name__ == "__main__":
    execute(main)
