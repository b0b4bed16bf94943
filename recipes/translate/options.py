"""The command line of the recipe."""

import argparse

from ..options import (
    add_prepare_option,
    add_run_options,
    check_at_least,
    check_learning_rate,
    set_missing,
)

# Where a task needs other values than the command line's defaults for parallel text.
_DATES = {
    "num_layers": 2,
    "dropout": 0.1,
    "tokenizer": "characters",
    "epochs": 5,
    "learning_rate": 0.003,
    "warmup_steps": 400,
    "average_last": 1,
    "max_length": 16,
    "beams": 1,
}
_TEXT = {
    "num_layers": None,
    "dropout": None,
    "tokenizer": "bpe",
    "epochs": 48,
    "learning_rate": 0.005,
    "warmup_steps": 2000,
    "average_last": 10,
    "max_length": 96,
    "beams": 5,
}


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.translate",
        description="Trains a Transformer to translate, evaluates it on held-out data, exports it "
        "and writes a result card. Without --data-dir the data are dates in many languages, made "
        "offline, to be written as ISO 8601. Started again with the same --out, a run goes on "
        "where it stopped.",
    )
    add = parser.add_argument
    add("--data-dir", help="directory with SPLIT.LANGUAGE[.gz]; default: dates")
    add("--source", default="en", help="language to translate from (default: %(default)s)")
    add("--target", default="de", help="language to translate to (default: %(default)s)")
    add("--variant", default="raw", help='"raw" or for instance "lc.norm.tok" (default: raw)')
    add("--out", default="runs/translate", help="the run's directory (default: %(default)s)")
    add("--preset", default="transformer_tiny", help="size of the model (default: %(default)s)")
    add("--num-layers", type=int, help="layers on each side, in place of the preset's")
    add("--residual", default="pre_norm", choices=["pre_norm", "post_norm"])
    add("--dropout", type=float, help="in place of the preset's")
    add("--tokenizer", choices=["bpe", "unigram", "characters"])
    add("--vocabulary-size", type=int, default=8000, help="most pieces (default: %(default)s)")
    add("--epochs", type=int, help="passes over the training data")
    add("--steps", type=int, help="in place of --epochs: whole epochs up to so many steps")
    add("--tokens-per-batch", type=int, default=4096, help="default: %(default)s")
    add(
        "--packing",
        type=int,
        metavar="TOKENS",
        help="rows of so many tokens with several sentences each, in place of rows of one sentence "
        "and batches of like lengths; one shape, as compilers want it",
    )
    add("--learning-rate", type=float, help="the peak, reached after the warm-up")
    add("--warmup-steps", type=int)
    add("--label-smoothing", type=float, default=0.1, help="default: %(default)s")
    add("--clip-norm", type=float, default=1.0, help="of the whole gradient (default: %(default)s)")
    add("--average-last", type=int, help="epochs whose weights are averaged at the end")
    add("--validate-every", type=int, default=1, help="epochs between validations (default: 1)")
    add("--max-length", type=int, help="most tokens of a translation")
    add(
        "--max-source-length",
        type=int,
        default=256,
        help="most tokens of a sentence in the data, and of a source that the export reads "
        "(default: %(default)s)",
    )
    add("--beams", type=int, help="of the evaluation and the export; 1 is greedy")
    add("--length-penalty", type=float, default=0.6, help="of the beam (default: %(default)s)")
    add_prepare_option(add)
    add_run_options(add)
    options = parser.parse_args(arguments)
    set_missing(options, _TEXT if options.data_dir else _DATES)
    check_at_least(
        *(parser, options, 1),
        *("epochs", "tokens_per_batch", "max_length", "max_source_length"),
        *("beams", "average_last", "validate_every", "warmup_steps", "vocabulary_size"),
        *("steps", "export_version", "num_layers", "checkpoint_steps", "packing"),
    )
    check_learning_rate(parser, options)
    if options.packing and options.packing > options.tokens_per_batch:
        parser.error("--packing must be at most --tokens-per-batch")
    return options
