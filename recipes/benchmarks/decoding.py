"""Decoding: 64 tokens from 32, greedy and with 4 beams, ours and the peers', in turn."""

import itertools
import os

from .card import card_parser, new_card
from .harness import Contender, compare, measure

SOURCE_LENGTH, NEW_TOKENS = 32, 64
OURS = {
    "keras_attn, XLA in process": "xla",
    "keras_attn, plain graph": "graph",
    "keras_attn, reloaded SavedModel": "saved_model",
}
XLA, GRAPH, SAVED_MODEL = OURS
HUGGING_FACE = "Hugging Face generate"
CORES = os.cpu_count()
# With one sentence, an operation is over before a second thread has joined it.
ONE_THREAD = {name: f"{name}, 1 thread" for name in OURS}
# CTranslate2 is often faster with one thread than with all, so it runs at every setting, and the
# fastest counts. Replicas share a batch, so they help only where there is more than one sentence.
CTRANSLATE2 = {
    f"CTranslate2, {CORES} threads": {"threads": CORES},
    "CTranslate2, 1 thread": {"threads": 1},
    f"CTranslate2, {CORES} workers of 1 thread": {"threads": 1, "workers": CORES},
}
PLACE = f"{__package__}.contenders"
METHOD = (
    f"Milliseconds to read {SOURCE_LENGTH} tokens a sentence and write exactly {NEW_TOKENS}, "
    "float32, random weights, vocabulary 8,000, key-value caches on. The end of sentence is made "
    "impossible: by a minimum length for CTranslate2 and Hugging Face, by zero rows of the "
    "embedding table for keras_attn. A rate counts written tokens. CTranslate2, and keras_attn for "
    "one sentence, count with their fastest number of threads. Each contender is a process of its "
    "own and all are asked in turn, {repetitions} times at least 0.15 s."
)


def contenders(size, batch, beams):
    """Every contender of one case."""
    options = {"size": size, "batch": batch, "beams": beams}
    options |= {"source_length": SOURCE_LENGTH, "new_tokens": NEW_TOKENS}
    modes = {name: {"mode": mode} for name, mode in OURS.items()}
    if batch == 1:
        modes |= {ONE_THREAD[name]: {"mode": mode, "threads": 1} for name, mode in OURS.items()}
    ours = [Contender(n, f"{PLACE}.ours:decoding", options | mode) for n, mode in modes.items()]
    engines = [
        Contender(name, f"{PLACE}.ct2:decoding", options | setting)
        for name, setting in CTRANSLATE2.items()
        if setting.get("workers", 1) <= batch
    ]
    return [*ours, *engines, Contender(HUGGING_FACE, f"{PLACE}.marian:decoding", options)]


def comparisons(rows, beams):
    """Return the comparisons of each of our three decoders with its peers."""
    xla_asked = 1.1 if beams == 1 else 0.6
    asked = {XLA: xla_asked, GRAPH: 0.6, SAVED_MODEL: 0.6}
    fastest = {name: _fastest(rows, (name, ONE_THREAD[name])) for name in OURS}
    against_engine = [
        compare(rows, fastest[name], CTRANSLATE2, at_least) for name, at_least in asked.items()
    ]
    return against_engine + [compare(rows, fastest[name], [HUGGING_FACE], 1.0) for name in OURS]


def _fastest(rows, names):
    """Return the name of the least median; the first name if none ran."""
    present = [row for row in rows if row["name"] in names]
    return min(present, key=lambda row: row["median_seconds"])["name"] if present else names[0]


def main():
    parser = card_parser("decoding", __doc__, repetitions=7)
    parser.add_argument("--sizes", nargs="+", choices=("tiny", "base"), default=("tiny", "base"))
    parser.add_argument("--batches", nargs="+", type=int, default=(1, 32))
    parser.add_argument("--beams", nargs="+", type=int, default=(1, 4))
    arguments = parser.parse_args()
    card = new_card(arguments, "Decoding speed", METHOD, "tokens")
    cases = itertools.product(arguments.sizes, arguments.batches, arguments.beams)
    for size, batch, beams in cases:
        strategy = "greedy" if beams == 1 else f"{beams} beams"
        group = f"transformer_{size}, batch {batch}, {strategy}"
        print(group, flush=True)
        rows, skipped = measure(contenders(size, batch, beams), arguments.repetitions)
        card.add(group, rows, skipped, comparisons(rows, beams))
        card.write(arguments.out)
    print(card.markdown())


if __name__ == "__main__":
    main()
