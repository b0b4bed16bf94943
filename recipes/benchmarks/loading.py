"""Loading an export, the plain one and the compiled one, up to its last warm-up request."""

import statistics
import tempfile

from ..common import machine as provenance
from . import requirements
from .card import card_parser, execute, new_card, positive
from .harness import Contender, measure_first_calls
from .workload import SHAPES

MODULE = f"{__package__}.contenders.loading"
KINDS = {"plain SavedModel": None, "compiled SavedModel": "xla"}
PLAIN, COMPILED = KINDS
COLUMNS = {
    "MB of files": lambda row: f"{row['facts']['megabytes']:.1f}",
    "MB of graph": lambda row: f"{row['facts']['graph_megabytes']:.2f}",
    "load CPU s": lambda row: f"{row['facts']['load_seconds']:.1f}",
    "MB when warm": lambda row: f"{row['facts']['resident_mb']:.0f}",
    "requests": lambda row: str(len(row["facts"]["requests"])),
}
METHOD = (
    "Seconds in a fresh process to load an export and to run all requests that it carries, as a "
    "server does before the first client's: random weights, vocabulary 8,000, at most 64 tokens, "
    "float32. The compiled export has the buckets of `keras_attn.export.Buckets()`, and each has "
    "a request of its own. The load, buckets and first answers are in seconds of processor time. "
    "Bytes, memory and requests are those of the process of median time, of {repetitions}."
)


def main():
    parser = card_parser("loading", __doc__, repetitions=3)
    parser.add_argument("--sizes", nargs="+", choices=tuple(SHAPES), default=("tiny",))
    parser.add_argument("--beams", nargs="+", type=positive, default=(1, 4))
    arguments = parser.parse_args()
    card = new_card(arguments, "Loading an export", METHOD, columns=COLUMNS)
    card.content["versions"] = provenance.versions("keras_attn", "tensorflow")
    for size in arguments.sizes:
        for beams in arguments.beams:
            strategy = "greedy" if beams == 1 else f"{beams} beams"
            with tempfile.TemporaryDirectory() as folder:
                chosen = contenders(size, beams, folder)
                rows, skipped = measure_first_calls(chosen, arguments.repetitions)
            card.add(f"transformer_{size}, {strategy}", rows, skipped, comparisons(rows))
            card.write(arguments.out)
    print(card.markdown())


def contenders(size, beams, folder):
    """Write the exports, and return their contenders."""
    import keras_attn

    shape = SHAPES[size]
    model = keras_attn.models.create(shape.preset, vocabulary_size=shape.vocabulary_size)
    generation = keras_attn.generation
    strategy = generation.Greedy() if beams == 1 else generation.Beam(beams)
    write = keras_attn.export.saved_model
    return [
        Contender(
            name,
            f"{MODULE}:loading",
            {"directory": write(model, folder, strategy=strategy, compile=how)},
        )
        for name, how in KINDS.items()
    ]


def comparisons(rows):
    """The time of a bucket, the time to the first answer, and the memory, beside the plain one."""
    plain, compiled = (requirements.find(rows, name) for name in KINDS)
    if plain is None or compiled is None:
        return []
    plain, compiled = plain["facts"], compiled["facts"]
    # The first request of "ids" is small and compiles the smallest bucket.
    id_seconds = [seconds for name, _, seconds in compiled["requests"] if name == "ids"]
    bucket = statistics.median(id_seconds[2:])
    first, plain_first = (
        facts["load_seconds"] + facts["requests"][0][-1] for facts in (compiled, plain)
    )
    more = compiled["resident_mb"] - plain["resident_mb"]
    count = len(id_seconds) - 1
    statements = {
        f"**{COMPILED}**: {bucket:.1f} CPU s to compile a bucket (median of {count - 1})": bucket,
        f"**{COMPILED}**: {first:.1f} CPU s to load and to answer one sentence first, "
        f"{plain_first:.1f} for the {PLAIN}": first,
        f"**{COMPILED}**: {more:.0f} MB more than the {PLAIN} when warm, {more / count:.0f} MB for "
        f"each of {count} buckets": more,
    }
    return [requirements.check(COMPILED, text, value) for text, value in statements.items()]


if __name__ == "__main__":
    execute(main)
