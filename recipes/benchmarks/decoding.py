"""Decoding: 64 tokens from 32, greedy and with 4 beams, ours and the peers', in turn."""

import dataclasses
import itertools

from ..common.machine import cores, restrict_cores
from .card import (
    add_against_argument,
    add_cores_argument,
    card_parser,
    execute,
    new_card,
    positive,
)
from .harness import Contender, beside, compare, compare_twins, measure

SOURCE_LENGTH, NEW_TOKENS, FEW_TOKENS = 32, 64, 8
OURS = {
    "keras_attn, XLA in process": "xla",
    "keras_attn, plain graph": "graph",
    "keras_attn, reloaded SavedModel": "saved_model",
    "keras_attn, reloaded compiled SavedModel": "compiled",
}
XLA, GRAPH, SAVED_MODEL, COMPILED = OURS
IN_PARTS = f"{COMPILED}, one part per core"
PEERS = "ctranslate2", "hugging_face"
# With one sentence, an operation is over before a second thread has joined it. The limit is of an
# operation: independent ones of a graph may still run beside one another.
ONE_THREAD = {name: f"{name}, 1 thread" for name in OURS}
HUGGING_FACE = {
    "Hugging Face generate": {},
    "Hugging Face generate, 1 thread": {"threads": 1},  # for one sentence
}
CTRANSLATE2 = "CTranslate2"
MODULE = f"{__package__}.contenders"
METHOD = (
    f"Milliseconds to read {SOURCE_LENGTH} tokens a sentence and write exactly {NEW_TOKENS}, "
    "float32, random weights, vocabulary 8,000, key-value caches on. The end of sentence is made "
    "impossible: by a minimum length for CTranslate2 and Hugging Face, by zero rows of the "
    "embedding table for keras_attn. A rate counts written tokens. CTranslate2, and for one "
    "sentence keras_attn and Hugging Face, count with their fastest number of threads, which for "
    "these two is that of an operation; the compiled export counts with one part of a batch, or "
    f"one part per core. **fixed ms** and **us a step** are the line through the "
    f"processor time of {FEW_TOKENS} and of {NEW_TOKENS} tokens. Each contender is a process of "
    "its own and all are asked in turn, {repetitions} times at least 0.15 s."
)


def contenders(size, batch, beams, chosen=(*OURS.values(), *PEERS)):
    """The chosen contenders of one case: modes of ours, and peers."""
    options = {"size": size, "batch": batch, "beams": beams}
    options |= {"source_length": SOURCE_LENGTH, "new_tokens": NEW_TOKENS}
    modes = {name: {"mode": mode} for name, mode in OURS.items() if mode in chosen}
    if batch == 1 and cores() > 1:
        modes |= {ONE_THREAD[name]: mode | {"threads": 1} for name, mode in modes.items()}
    if 1 < cores() <= batch and OURS[COMPILED] in chosen:
        modes[IN_PARTS] = {"mode": "compiled_in_parts"}
    peers = {"ctranslate2": ("ct2", _engines(batch)), "hugging_face": ("marian", _peers(batch))}
    programs = [("ours", modes), *(peers[name] for name in PEERS if name in chosen)]
    return [
        Contender(name, f"{MODULE}.{program}:decoding", options | setting)
        for program, settings in programs
        for name, setting in settings.items()
    ]


def _engines(batch):
    """Return the settings of CTranslate2 that a batch can use, by name.

    It is often faster with one thread than with all, so it runs at every setting, and the fastest
    counts. Replicas share a batch, so they help only where there is more than one sentence.
    """
    count, settings = cores(), {f"{CTRANSLATE2}, 1 thread": {"threads": 1}}
    if count > 1:
        settings[f"{CTRANSLATE2}, {count} threads"] = {"threads": count}
    if 1 < count <= batch:
        settings[f"{CTRANSLATE2}, {count} workers of 1 thread"] = {"threads": 1, "workers": count}
    return settings


def _peers(batch):
    """Return the settings of Hugging Face for a batch, by name."""
    has_several = batch == 1 and cores() > 1
    return {name: setting for name, setting in HUGGING_FACE.items() if not setting or has_several}


def with_few_tokens(contenders):
    """Return each contender, followed by the one that writes few tokens."""
    few = {"new_tokens": FEW_TOKENS}
    return [
        each
        for own in contenders
        for each in (
            own,
            dataclasses.replace(own, name=_name_of_few(own.name), options=own.options | few),
        )
    ]


def _name_of_few(name):
    return f"{name}, {FEW_TOKENS} tokens"


def fixed_and_steps(rows):
    """Return the rows of `NEW_TOKENS`, with the fixed cost of a call and that of a step.

        cost(n) = fixed + n step,   by processor time

    Each row is compared with that of the same contender for few tokens, if that has run.
    """
    few = {row["name"]: row for row in rows}
    own = [row for row in rows if not row["name"].endswith(_name_of_few(""))]
    for row in own:
        shorter = few.get(_name_of_few(row["name"]))
        if shorter is not None:
            difference = row["cpu_seconds"] - shorter["cpu_seconds"]
            row["step_seconds"] = difference / (NEW_TOKENS - FEW_TOKENS)
            row["fixed_seconds"] = row["cpu_seconds"] - NEW_TOKENS * row["step_seconds"]
    return own


COLUMNS = {
    "fixed ms": lambda row: _number(row, "fixed_seconds", 1e3),
    "us a step": lambda row: _number(row, "step_seconds", 1e6),
}


def _number(row, name, factor):
    return f"{factor * row[name]:.1f}" if name in row else "-"


def comparisons(rows, beams):
    """Return the comparisons of each of our decoders with its peers, and of the two exports."""
    plain_asked = 0.7 if beams == 1 else 0.8
    asked = {XLA: 1.0, GRAPH: plain_asked, SAVED_MODEL: plain_asked, COMPILED: 1.0}
    settings = {name: [name, ONE_THREAD[name]] for name in OURS}
    settings[COMPILED].append(IN_PARTS)
    fastest = {name: _fastest(rows, names) for name, names in settings.items()}
    engines = [row["name"] for row in rows if row["name"].startswith(CTRANSLATE2)]
    against_engine = [
        compare(rows, fastest[name], engines, at_least) for name, at_least in asked.items()
    ]
    against_python = [compare(rows, fastest[name], HUGGING_FACE, 1.0) for name in OURS]
    exports = compare(rows, fastest[COMPILED], [fastest[SAVED_MODEL]])
    return [*against_engine, *against_python, exports]


def _fastest(rows, names):
    """Return the name of the least median; the first name if none ran."""
    present = [row for row in rows if row["name"] in names]
    return min(present, key=lambda row: row["median_seconds"])["name"] if present else names[0]


def main():
    parser = card_parser("decoding", __doc__, repetitions=7)
    parser.add_argument("--sizes", nargs="+", choices=("tiny", "base"), default=("tiny", "base"))
    parser.add_argument("--batches", nargs="+", type=positive, default=(1, 32))
    parser.add_argument("--beams", nargs="+", type=positive, default=(1, 4))
    known = (*OURS.values(), *PEERS)
    parser.add_argument("--contenders", nargs="+", choices=known, default=known)
    add_against_argument(parser)
    add_cores_argument(parser)
    arguments = parser.parse_args()
    restrict_cores(arguments.cores)
    columns = None if arguments.against else COLUMNS
    card = new_card(arguments, "Decoding speed", METHOD, "tokens", columns)
    cases = itertools.product(arguments.sizes, arguments.batches, arguments.beams)
    for size, batch, beams in cases:
        strategy = "greedy" if beams == 1 else f"{beams} beams"
        group = f"transformer_{size}, batch {batch}, {strategy}"
        print(group, flush=True)
        against = arguments.against
        chosen = contenders(size, batch, beams, arguments.contenders)
        chosen = beside(chosen, against) if against else with_few_tokens(chosen)
        rows, skipped = measure(chosen, arguments.repetitions)
        rows = fixed_and_steps(rows)
        compared = compare_twins(rows, chosen) if against else comparisons(rows, beams)
        card.add(group, rows, skipped, compared)
        card.write(arguments.out)
    print(card.markdown())


if __name__ == "__main__":
    execute(main)
