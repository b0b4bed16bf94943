"""Import time of keras_attn over that of Keras: fresh processes, in turn."""

from .card import card_parser, execute, new_card
from .harness import Contender, compare, measure_first_calls

TARGET = f"{__package__}.contenders.imports:importing"
OURS, KERAS = (
    Contender(f"import {name}", TARGET, {"name": name}) for name in ("keras_attn", "keras")
)
METHOD = (
    "Seconds of one import in a fresh process with the TensorFlow backend, the files in the page "
    "cache, {repetitions} times in turn. keras_attn imports Keras: its target is a speed of at "
    "least 1 / 1.05 of Keras's."
)


def main():
    arguments = card_parser("imports", __doc__, repetitions=15).parse_args()
    card = new_card(arguments, "Import time", METHOD)
    measure_first_calls([OURS, KERAS], repetitions=1)  # Fills the page cache.
    rows, skipped = measure_first_calls([OURS, KERAS], arguments.repetitions)
    comparison = compare(rows, OURS.name, [KERAS.name], at_least=round(1 / 1.05, 3))
    card.add("First import", rows, skipped, [comparison])
    print(card.write(arguments.out))


if __name__ == "__main__":
    execute(main)
