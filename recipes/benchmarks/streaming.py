"""Cost of one more token of a stream, after ten thousand to a million."""

import numpy as np

from . import requirements
from .card import card_parser, execute, new_card, positive
from .harness import Contender, measure

MODULE = f"{__package__}.contenders.streaming"
POSITIONS = (10_000, 100_000, 1_000_000)
MOST_KEYS = 100_000  # of the cache with all keys
COUNT, WINDOW = 4, 252
# Greatest ratios of the last position to the first.
MOST_TIME, MOST_MEMORY = 1.2, 1.1
METHOD = (
    "One more token of a stream, 2 layers of width 64 with rotary positions, float32. **Sinks** is "
    f"`export.TokenStream` with `patterns.Sinks({COUNT}, {WINDOW})`: it has read the whole stream "
    "up to the position, as many tokens as the row says, and reads one more token a call. **all "
    "keys** is `patterns.Causal` with a cache that holds a key for each position; its keys are "
    "zeros. Peak MB is of the whole process while it reads those tokens, not of the reading up to "
    "the position. Each contender is a process of its own and all are asked in turn, {repetitions} "
    "times."
)


def main():
    parser = card_parser("streaming", __doc__, repetitions=7)
    parser.add_argument("--positions", nargs="+", type=positive, default=POSITIONS)
    arguments = parser.parse_args()
    columns = {"state MB": lambda row: f"{row['facts']['state_mb']:.2f}"}
    card = new_card(arguments, "A stream without end", METHOD, "tokens", columns)
    contenders = []
    for position in arguments.positions:
        sizes = {"position": position, "count": COUNT, "window": WINDOW}
        contenders.append(Contender(f"Sinks, {position:,}", f"{MODULE}:sinks", sizes))
    for position in arguments.positions:
        if position <= MOST_KEYS:
            sizes = {"position": position}
            contenders.append(Contender(f"all keys, {position:,}", f"{MODULE}:all_keys", sizes))
    rows, skipped = measure(contenders, arguments.repetitions)
    first, last = (f"Sinks, {arguments.positions[i]:,}" for i in (0, -1))
    card.add("A step", rows, skipped, comparisons(rows, first, last))
    card.headline(*angles_table(arguments.positions))
    card.write(arguments.out)
    print(card.markdown())


def comparisons(rows, first, last):
    """Return the time and the memory of the last position over those of the first."""
    peaks = [requirements.find(rows, name) for name in (last, first)]
    if None in peaks:
        return []
    ratio = peaks[0]["peak_mb"] / peaks[1]["peak_mb"]
    statement = f"**{last}** has {ratio:.2f} times the peak memory of {first}"
    return [
        requirements.growth(rows, last, first, at_most=MOST_TIME),
        requirements.check(last, statement, ratio, at_most=MOST_MEMORY),
    ]


def logit_error(position, size=16, distances=WINDOW):
    """Return the error of logits by float32 angles at a position, relative to the logits.

    Both are root mean squares. `Rotary` turns queries and keys by angles, which float32 rounds by
    more at farther positions. Queries and keys are normal numbers, and keys are up to `distances`
    positions before.
    """
    from keras_attn.positions import Rotary

    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((2, distances, size)).astype("float32")
    places = np.stack([np.full(distances, position), position - np.arange(distances)])
    logits = []
    for dtype in ("float32", "float64"):
        query, key = Rotary(dtype=dtype)(vectors.astype(dtype), places.astype("int32"))
        logits.append(np.sum(np.asarray(query, "float64") * np.asarray(key, "float64"), axis=-1))
    return np.sqrt(np.mean((logits[0] - logits[1]) ** 2) / np.mean(logits[1] ** 2))


def angles_table(positions):
    """Return Markdown: the error of logits over the position."""
    return [
        "| position | error of logits by float32 angles, relative to the logits |",
        "| --: | --: |",
        *(f"| {position:,} | {logit_error(position):.1e} |" for position in positions),
    ]


if __name__ == "__main__":
    execute(main)
