"""Cost of scoring a text segment by segment with a memory, or anew for each token."""

from . import requirements
from .card import card_parser, execute, new_card, positive
from .harness import Contender, measure

MODULE = f"{__package__}.contenders.segment_memory"
CONTEXTS = (256, 512, 1024)
SEGMENT, WINDOWS = 128, 8
METHOD = (
    "Scoring each token of a text from at least so many tokens before it, 6 layers of width 256, "
    "float32, in a plain graph. **with memory** is `transformer_xl`, which reads the text in "
    f"segments of {SEGMENT} and keeps the context as a memory; **re-reading** is `gpt`, which "
    f"reads the whole context for each token, {WINDOWS} windows at once. A rate counts tokens "
    "scored. Each contender is a process of its own and all are asked in turn, {repetitions} times."
)


def main():
    parser = card_parser("segment_memory", __doc__, repetitions=5)
    parser.add_argument("--contexts", nargs="+", type=positive, default=CONTEXTS)
    arguments = parser.parse_args()
    card = new_card(
        arguments, "Scoring with a memory beside re-reading the context", METHOD, "tokens"
    )
    ratios = {}
    for context in arguments.contexts:
        print(context, flush=True)
        sizes = {"context": context, "segment": SEGMENT}
        ours = Contender(f"with memory, {context:,}", f"{MODULE}:with_memory", sizes)
        sizes = {"context": context, "windows": WINDOWS}
        other = Contender(f"re-reading, {context:,}", f"{MODULE}:re_reading", sizes)
        rows, skipped = measure([ours, other], arguments.repetitions)
        comparison = requirements.rates(rows, ours.name, other.name, "scores")
        card.add(f"A context of {context:,} tokens", rows, skipped, [comparison])
        if comparison:
            ratios[context] = comparison["value"]
        card.headline(*table(ratios))
        card.write(arguments.out)
    print(card.markdown())


def table(ratios):
    """Markdown: the ratio over the context."""
    return [
        "| context | times as many tokens a second with a memory |",
        "| --: | --: |",
        *(f"| {context:,} | {ratio:.0f} |" for context, ratio in ratios.items()),
    ]


if __name__ == "__main__":
    execute(main)
