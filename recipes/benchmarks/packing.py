"""Packed rows of paragraphs: training by segment ids, by an attention mask, and by padding."""

import pathlib
import tempfile

from . import requirements
from .card import card_parser, execute, new_card, positive
from .contenders.pipeline import BUCKETS, MATRIX, NAIVE, PACKED, save
from .harness import measure
from .pipeline import (
    ROW_LENGTHS,
    TOKENS_PER_BATCH,
    VOCABULARY_SIZE,
    padding_of,
    paragraphs_of,
    training_contender,
)

PADDED = {"naive padding": NAIVE, "TokenBatches": BUCKETS}
ROWS = (128, 256, 512, 1024)
METHOD = (
    f"Paragraphs of PEPs as subwords of a vocabulary of {VOCABULARY_SIZE:,}; one of more than "
    f"{ROW_LENGTHS['peps'] - 1} is divided. A rate counts real tokens. **segment ids** are "
    "PackedBatches in rows of that length, whose layers get `segment_ids`; **attention mask** are "
    "the same batches and weights, whose layers get a mask (B, T, T) and positions. "
    "**TokenBatches** have paragraphs of similar length. Both have at most "
    f"{TOKENS_PER_BATCH:,} ids a batch, marks and padding among them. **naive padding** takes "
    "paragraphs in any order, as many a batch as TokenBatches has in the mean, and pads to the "
    "longest, so that its batches have more ids. Steps are those of "
    "`model.fit` of a `gpt` of 4 layers of width {hidden_dim} without XLA on batches spread over "
    "an epoch, float32, {steps} a call. Each contender is a process of its own and all are asked "
    "in turn, {repetitions} times."
)


def main():
    parser = card_parser("packing", __doc__, repetitions=5)
    parser.add_argument("--data-dir", required=True, help="folder with the folder peps")
    parser.add_argument("--steps", type=positive, default=4, help="optimizer steps of a call")
    parser.add_argument("--hidden-dim", type=positive, default=128, help="width of the model")
    parser.add_argument(
        "--rows", nargs="+", type=positive, default=ROWS, help="lengths of packed rows"
    )
    arguments = parser.parse_args()
    card = new_card(arguments, "Packed rows", METHOD, "tokens", {"padding": padding_of})
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "paragraphs.npz"))
        save(path, None, paragraphs_of(arguments.data_dir))
        for length in arguments.rows:
            print(f"Rows of {length}", flush=True)
            add_rows(card, path, length, arguments)
            card.write(arguments.out)
    print(card.markdown())


def add_rows(card, path, length, arguments):
    """Add the rates of training on rows of one length, and on padded batches."""

    def contender(name, way, row_length):
        sizes = {"row_length": row_length, "hidden_dim": arguments.hidden_dim}
        return training_contender(name, path, "gpt", way, arguments.steps, **sizes)

    ids, mask = f"segment ids, rows of {length}", f"attention mask, rows of {length}"
    padded = [contender(name, way, ROW_LENGTHS["peps"]) for name, way in PADDED.items()]
    chosen = [contender(ids, PACKED, length), contender(mask, MATRIX, length), *padded]
    rows, skipped = measure(chosen, arguments.repetitions)
    asked = {mask: 1.3, "TokenBatches": 1.0, "naive padding": None}
    comparisons = [
        requirements.rates(rows, ids, other, "trains on", at_least)
        for other, at_least in asked.items()
    ]
    card.add(f"Rows of {length:,} tokens", rows, skipped, comparisons)


if __name__ == "__main__":
    execute(main)
