"""The forms in which a trained translator is served: how large, how good, how fast."""

import tempfile

from . import requirements
from .card import card_parser, execute, new_card, positive
from .contenders.exports import ENGINES, prepare
from .harness import Contender, measure

MODULE = f"{__package__}.contenders.exports"
FORMS = tuple(engine + suffix for engine in ENGINES for suffix in ("", "_int8"))
COLUMNS = {
    "MB": lambda row: f"{row['facts']['megabytes']:.2f}",
    "MB of weights": lambda row: f"{row['facts']['weight_megabytes']:.2f}",
    "score": lambda row: f"{row['facts']['value']:.4g}",
    "as in Python": lambda row: f"{row['facts']['same']} of {row['facts']['sentences']}",
    "scores differ by": lambda row: f"{row['facts']['score_difference']:.0e}",
}
METHOD = (
    "The translator in `{run}` ({parameters:,} parameters, {metric}) in each form that it can be "
    "exported to, greedy, in batches of {batch} sentences of like length, on all cores; "
    "compiled_saved_model is compiled by XLA for batches of that size. **as in Python** counts the "
    "translations that are those of `keras_attn.generation` with float32 weights, and **scores "
    "differ by** is the largest difference of a log-probability. The score of Python is "
    "{value:.4g}."
)


def main():
    parser = card_parser("exports", __doc__, repetitions=5)
    parser.add_argument("run", help="directory of a finished run of recipes.translate")
    parser.add_argument("--sentences", type=positive, default=200, help="of the first test split")
    parser.add_argument("--batch", type=positive, default=32, help="default: %(default)s")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            facts = prepare(arguments.run, folder, arguments.sentences, arguments.batch)
        except (OSError, KeyError, ValueError) as error:
            print(f"{arguments.run} holds no finished run of recipes.translate: {error}")
            return 2
        title = "A translator in the forms it is served in"
        card = new_card(arguments, title, METHOD, "sentences", COLUMNS, **facts)
        contenders = [
            Contender(form, f"{MODULE}:translating", {"form": form, "folder": folder})
            for form in arguments.forms
        ]
        rows, skipped = measure(contenders, arguments.repetitions)
        card.add(f"{facts['sentences']} sentences", rows, skipped, comparisons(rows))
        card.write(arguments.out)
    print(card.markdown())
    return 0


def comparisons(rows):
    """Eight bits against float32 of the same engine."""
    by_name = {row["name"]: row["facts"] for row in rows}
    checks = []
    for name, facts in by_name.items():
        whole = by_name.get(name.removesuffix("_int8"))
        if whole is None or whole is facts:
            continue
        for key, what in (("megabytes", "all files"), ("weight_megabytes", "the weights")):
            ratio = facts[key] / whole[key]
            statement = f"**{name}**: {what} take {ratio:.3f} of the bytes"
            checks.append(requirements.check(name, statement, ratio, at_most=0.3))
        lost = whole["value"] - facts["value"]
        statement = f"**{name}** loses {lost:.4g} of the score"
        checks.append(requirements.check(name, statement, lost))
    return checks


if __name__ == "__main__":
    execute(main)
