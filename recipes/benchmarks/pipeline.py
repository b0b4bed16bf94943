"""The input pipeline: its rate against that of training, and the cost of padding."""

import pathlib
import tempfile

import numpy as np

from ..common import files
from ..text.corpus import train_on_sentences
from ..translate.parallel_text import ParallelText
from . import requirements
from .card import card_parser, execute, new_card, positive
from .contenders.pipeline import BUCKETS, NAIVE, PACKED, WAYS, save
from .harness import Contender, measure

MODULE = f"{__package__}.contenders.pipeline"
VOCABULARY_SIZE = 8000
TOKENS_PER_BATCH, BASE_TOKENS = 4096, 1024
# Four times the mean sentence of Multi30k, which its longest ones fill; paragraphs are cut.
ROW_LENGTHS = {"multi30k": 64, "peps": 128}
PARAGRAPHS = 20_000
NAMES = {NAIVE: "naive padding", BUCKETS: "TokenBatches", PACKED: "PackedBatches"}
METHOD = (
    f"Subwords of a vocabulary of {VOCABULARY_SIZE:,}, made beforehand. A rate counts real "
    "tokens, of source and target. **TokenBatches** takes sentences of similar length, and "
    "**PackedBatches** fills rows of {rows} with several, at most "
    f"{TOKENS_PER_BATCH:,} ids a side, marks and padding among them. **naive padding** takes "
    "sentences in any order, as many a batch as TokenBatches has in the mean, and pads to the "
    "longest, so that its batches have more ids. *padding* is the "
    "share of the ids that a training step computes for nothing. Steps are those of `model.fit` "
    "without XLA on batches spread over an epoch from the shortest on, float32, {steps} a call; "
    f"those of transformer_base are of {BASE_TOKENS:,} ids. Each contender is a process of its "
    "own and all are asked in turn, {repetitions} times."
)


def main():
    parser = card_parser("pipeline", __doc__, repetitions=5)
    parser.add_argument(
        "--data-dir", required=True, help="folder with the folders multi30k and peps"
    )
    parser.add_argument("--steps", type=positive, default=4, help="optimizer steps of a call")
    parser.add_argument("--preset", default="transformer_tiny", help="what is trained on pairs")
    arguments = parser.parse_args()
    rows = f"{ROW_LENGTHS['multi30k']} (pairs) or {ROW_LENGTHS['peps']} (paragraphs) tokens"
    columns = {"padding": padding_of}
    card = new_card(arguments, "The input pipeline", METHOD, "tokens", columns, rows=rows)
    with tempfile.TemporaryDirectory() as folder:
        pairs, paragraphs = (str(pathlib.Path(folder, f"{name}.npz")) for name in ROW_LENGTHS)
        save(pairs, *pairs_of(arguments.data_dir))
        save(paragraphs, None, paragraphs_of(arguments.data_dir))
        add_pipeline(card, pairs, arguments.repetitions)
        card.write(arguments.out)
        for group, path, model in (
            (f"Multi30k, English to German, `{arguments.preset}`", pairs, arguments.preset),
            ("Paragraphs of PEPs, a `gpt` of 4 layers of width 128", paragraphs, "gpt"),
        ):
            print(group, flush=True)
            add_training(card, group, path, model, arguments)
            card.write(arguments.out)
    print(card.markdown())


def pairs_of(data_dir):
    """Token ids of both sides of the training pairs."""
    sides = zip(*ParallelText(pathlib.Path(data_dir, "multi30k"), "train", "en", "de"))
    sides = [list(side) for side in sides]
    tokenizer = train_on_sentences(
        [line for side in sides for line in side], "bpe", VOCABULARY_SIZE
    )
    longest = ROW_LENGTHS["multi30k"] - 1  # and the mark
    encoded = zip(*map(tokenizer.encode_as_lists, sides), strict=True)
    fitting = [pair for pair in encoded if max(map(len, pair)) <= longest]
    return [[np.array(ids, "int32") for ids in side] for side in zip(*fitting, strict=True)]


def paragraphs_of(data_dir):
    """Token ids of paragraphs; a longer one than a row is divided."""
    content = files.read(files.find(pathlib.Path(data_dir, "peps"), "train.txt")).decode()
    paragraphs = [part.strip() for part in content.split("\n\n")]
    paragraphs = [part for part in paragraphs if part][:PARAGRAPHS]
    lines = [line for part in paragraphs for line in part.split("\n")]
    tokenizer = train_on_sentences(lines, "bpe", VOCABULARY_SIZE)
    most = ROW_LENGTHS["peps"] - 1  # and the mark
    return [
        np.array(ids[start : start + most], "int32")
        for ids in tokenizer.encode_as_lists(paragraphs)
        for start in range(0, len(ids), most)
    ]


def add_pipeline(card, path, repetitions):
    """Add the rates of the pipeline alone and of training `transformer_base`."""
    data = {"path": path, "tokens_per_batch": TOKENS_PER_BATCH}
    alone = [
        Contender(
            f"{NAMES[way]}, the pipeline alone",
            f"{MODULE}:alone",
            {**data, "way": way, "row_length": ROW_LENGTHS["multi30k"]},
        )
        for way in (BUCKETS, PACKED)
    ]
    base = training_contender(
        "training transformer_base", path, "transformer_base", BUCKETS, 1, BASE_TOKENS
    )
    rows, skipped = measure([*alone, base], repetitions)
    asked = [requirements.rates(rows, one.name, base.name, "gives", at_least=5.0) for one in alone]
    card.add("The pipeline and transformer_base", rows, skipped, asked)


def add_training(card, group, path, model, arguments):
    """Add real tokens a second with each way to make batches."""
    contenders = [training_contender(NAMES[way], path, model, way, arguments.steps) for way in WAYS]
    rows, skipped = measure(contenders, arguments.repetitions)
    naive, buckets, packed = (NAMES[way] for way in WAYS)
    comparisons = [
        requirements.rates(rows, name, other, "trains on")
        for name, other in ((buckets, naive), (packed, naive), (packed, buckets))
    ]
    card.add(group, rows, skipped, comparisons)


def training_contender(name, path, model, way, steps, tokens_per_batch=TOKENS_PER_BATCH, **more):
    """Return the contender of training steps; `more` options replace those of the function."""
    options = {
        "path": path,
        "model": model,
        "way": way,
        "tokens_per_batch": tokens_per_batch,
        "row_length": ROW_LENGTHS["peps" if model == "gpt" else "multi30k"],
        "steps": steps,
        "vocabulary_size": VOCABULARY_SIZE,
        **more,
    }
    return Contender(name, f"{MODULE}:training", options)


def padding_of(row):
    share = row["facts"].get("padding")
    return "" if share is None else f"{100 * share:.0f} %"


if __name__ == "__main__":
    execute(main)
