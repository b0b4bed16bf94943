"""The perplexity of a language model whose exported weights have 32, 8 or 4 bits."""

import math
import os

from . import requirements
from .card import card_parser, execute, new_card, positive
from .harness import Contender, measure

MODULE = f"{__package__}.contenders.quantization"
FORMS = ("float32", "int8", "int4")
METHOD = (
    "The model of the run `{run}` as a SavedModel, whose large weights are stored as each form "
    "says, and its perplexity per token on the first {tokens:,} tokens of the test split. Rows of "
    "{context} tokens are scored, all tokens but the first of each. What is timed is the scoring, "
    "in float32 in each form."
)

COLUMNS = {
    "MB": lambda row: f"{row['facts']['megabytes']:.2f}",
    "MB of weights": lambda row: f"{row['facts']['weight_megabytes']:.2f}",
    "perplexity": lambda row: f"{row['facts']['perplexity']:.4f}",
}


def main():
    parser = card_parser("quantization", __doc__, repetitions=3)
    parser.add_argument("run", help="directory of a finished run of recipes.language_model")
    parser.add_argument("--tokens", type=positive, default=100_000, help="default: %(default)s")
    parser.add_argument("--context", type=positive, default=128, help="default: %(default)s")
    arguments = parser.parse_args()
    for name in ("model.keras", "tokens"):
        if not os.path.exists(os.path.join(arguments.run, name)):
            print(f"{arguments.run} holds no finished run of recipes.language_model: no {name}")
            return 2
    card = new_card(arguments, "A language model in fewer bits", METHOD, "tokens", COLUMNS)
    options = {"run": arguments.run, "tokens": arguments.tokens, "context": arguments.context}
    contenders = [Contender(form, f"{MODULE}:scoring", {"form": form, **options}) for form in FORMS]
    rows, skipped = measure(contenders, arguments.repetitions)
    parameters = next((f"{row['facts']['parameters']:,} parameters" for row in rows), "No model")
    card.add(parameters, rows, skipped, comparisons(rows))
    card.write(arguments.out)
    print(card.markdown())
    return 0


def comparisons(rows):
    """Fewer bits against 32: bytes of the weights, and the loss of perplexity."""
    whole, checks = requirements.find(rows, "float32"), []
    for row in rows:
        if row is whole or whole is None:
            continue
        name, facts = row["name"], row["facts"]
        ratio = facts["weight_megabytes"] / whole["facts"]["weight_megabytes"]
        statement = f"**{name}**: the weights take {ratio:.3f} of the bytes"
        checks.append(requirements.check(name, statement, ratio))
        worse = facts["perplexity"] / whole["facts"]["perplexity"] - 1
        bits = math.log2(1 + worse)
        statement = f"**{name}**: the perplexity is {worse:+.2%}, {bits:+.4f} bits per token"
        checks.append(requirements.check(name, statement, worse))
    return checks


if __name__ == "__main__":
    execute(main)
