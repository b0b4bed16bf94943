"""Reading of a corpus in files: its rate beside that of training, and its memory."""

import os
import tempfile

import numpy as np

from . import requirements
from .card import card_parser, execute, new_card, positive
from .contenders.corpus import BATCH, CONTEXT, VOCABULARY_SIZE, make_corpus
from .contenders.pipeline import BUCKETS, save
from .harness import Contender, measure
from .pipeline import BASE_TOKENS, training_contender
from .workload import FIRST_WORD

MODULE = f"{__package__}.contenders.corpus"
TRAINING, NOTHING = "training transformer_base", "an empty loop"
WAYS = {"random": "segments in a random order", "streams": "segment streams", "none": NOTHING}
CHARACTERS = 4  # a token of English in a vocabulary of 8,000 stands for
MOST_MEMORY = 60  # MB over an empty loop
LEAST_RATE = 20  # times the tokens a second of training
METHOD = (
    "{tokens:,} random token ids of two bytes in {shards} files, as many as {megabytes:,} MB of "
    f"text have at {CHARACTERS} characters a token, made beforehand; batches of {BATCH} segments "
    f"of {CONTEXT:,} tokens, in one process. A call makes {{batches}} batches. Before the first "
    "call something of each file is read, and so its SHA-256 is computed: *hash, s*. **"
    f"{NOTHING}** imports the same and opens the corpus. **{TRAINING}** is a step of "
    f"{BASE_TOKENS:,} ids of made-up pairs. Each contender is a process of its own and all are "
    "asked in turn, {repetitions} times."
)


def main():
    parser = card_parser("corpus", __doc__, repetitions=5)
    parser.add_argument("--megabytes", type=positive, default=4000, help="of text")
    parser.add_argument("--shards", type=positive, default=16)
    parser.add_argument("--batches", type=positive, default=200, help="of a call")
    parser.add_argument("--folder", help="of the corpus (default: a temporary one)")
    arguments = parser.parse_args()
    tokens = arguments.megabytes * 10**6 // CHARACTERS
    columns = {"hash, s": hash_seconds}
    card = new_card(arguments, "A corpus in files", METHOD, "tokens", columns, tokens=tokens)
    with tempfile.TemporaryDirectory() as temporary:
        folder, pairs = arguments.folder or temporary, os.path.join(temporary, "pairs.npz")
        try:
            make_corpus(folder, tokens, arguments.shards)
        except ValueError as error:
            parser.error(str(error))
        save(pairs, *made_up_pairs())
        contenders = [
            Contender(
                name,
                f"{MODULE}:reading",
                {"folder": folder, "batches": arguments.batches, "way": way},
            )
            for way, name in WAYS.items()
        ]
        base = training_contender(TRAINING, pairs, "transformer_base", BUCKETS, 1, BASE_TOKENS)
        rows, skipped = measure([*contenders, base], arguments.repetitions)
    comparisons = [x for way in ("random", "streams") for x in asked(rows, WAYS[way])]
    card.add("Reading", rows, skipped, comparisons)
    print(card.write(arguments.out))


def made_up_pairs(number=400):
    """Return sources and targets of random lengths, ids of ordinary words."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(8, 24, (2, number))
    return [
        [generator.integers(FIRST_WORD, VOCABULARY_SIZE, n).astype("int32") for n in side]
        for side in lengths
    ]


def asked(rows, name):
    """Return the comparisons of a row with an empty loop and with training."""
    shuffled, empty = (requirements.find(rows, one) for one in (name, NOTHING))
    if shuffled is None or empty is None:
        return []
    more = shuffled["peak_mb"] - empty["peak_mb"]
    statement = f"**{name}** takes {more:.0f} MB more at its peak than {NOTHING}"
    return [
        requirements.check(name, statement, more, at_most=MOST_MEMORY),
        requirements.rates(rows, name, TRAINING, "gives", at_least=LEAST_RATE),
    ]


def hash_seconds(row):
    seconds = row["facts"].get("hash_seconds")
    return "" if seconds is None else f"{seconds:.1f}"


if __name__ == "__main__":
    execute(main)
