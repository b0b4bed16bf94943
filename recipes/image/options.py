"""The command line of the recipe."""

import argparse
import math

from ..options import (
    add_page_option,
    add_run_options,
    add_schedule_options,
    add_size_options,
    check_at_least,
    check_learning_rate,
    divide,
    set_missing,
)
from .data import KINDS
from .shapes import MODELS, PATTERNS, pattern_sizes

# Sizes without a preset.
SIZES = {
    "num_layers": 6,
    "num_heads": 4,
    "hidden_dim": 160,
    "intermediate_dim": 640,
    "dropout": 0.2,
}


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.image",
        description="Trains a model of images, evaluates it on held-out ones in bits per "
        "dimension, draws samples, exports it and writes a result card. By default the images are "
        "scikit-learn's digits. Started again with the same --out, a run goes on where it stopped.",
    )
    add = parser.add_argument
    add("--dataset", default="digits", choices=list(KINDS))
    add("--data-dir", help="directory with CIFAR-10's *.bin, or ImageNet's train*.np[yz], val*")
    add("--out", default="runs/image", help="the run's directory (default: %(default)s)")
    add("--model", default="image_transformer", choices=MODELS)
    add("--preset", help="a paper's sizes, in place of --model and the following")
    add_size_options(add, SIZES)
    add(
        "--pattern",
        choices=PATTERNS,
        help="which tokens before it a token meets; dense: all "
        "(default: block_local_1d; of sparse_transformer strided)",
    )
    add("--block-length", type=int, help="of block_local_1d, in tokens")
    add("--lookback", type=int, help="of block_local_1d (default: the block's length)")
    for name, of in (("--query-shape", "a block"), ("--flange", "the rim above and at each side")):
        shape = {"type": int, "nargs": 2, "metavar": ("ROWS", "COLUMNS")}
        add(name, **shape, help=f"of block_local_2d: {of}")
    add("--stride", type=int, help="of strided and fixed (default: the tokens of a row)")
    add("--summary", type=int, help="of fixed, in tokens (default: a quarter of the stride)")
    add(
        "--likelihood",
        choices=["categorical", "logistics"],
        help="of a value: a softmax, or of a pixel: a mixture of logistics (default: categorical)",
    )
    add("--num-mixtures", type=int, help="of logistics (default: 10)")
    add_page_option(add, "factors=interleaved")
    add("--batch-size", type=int, default=32, help="images of a step (default: %(default)s)")
    add("--train-images", type=int, default=60_000, help="to train on (default: %(default)s)")
    add("--steps", type=int, help="in place of --train-images")
    add_schedule_options(add, warmup="a tenth")
    add("--valid-images", type=int, default=500, help="of a validation, at most (%(default)s)")
    add("--test-images", type=int, help="of the test, at most (default: all)")
    add("--samples", type=int, default=64, help="images to draw (default: %(default)s)")
    add("--temperature", type=float, default=1.0, help="of the drawing (default: %(default)s)")
    add_run_options(add)
    options = parser.parse_args(arguments)
    if options.preset:
        _fill_from_preset(parser, options)
    check_at_least(
        *(parser, options, 1),
        *("num_layers", "num_heads", "hidden_dim", "intermediate_dim", "num_mixtures", "stride"),
        *("block_length", "summary", "batch_size", "train_images", "steps", "epochs"),
        *("valid_images", "test_images", "samples", "checkpoint_steps", "export_version"),
    )
    check_at_least(parser, options, 0, "warmup_steps", "dropout", "lookback")
    check_learning_rate(parser, options)
    _fill(options)
    _check(parser, options)
    return options


def _fill_from_preset(parser, options):
    """The model, its sizes, pattern and other arguments, but for what the command line gives."""
    from keras_attn.models import PRESETS  # not for --help, which is to be quick

    known = [
        name
        for name, (page, sizes) in PRESETS.items()
        if page.__name__ in MODELS and "summary" not in sizes  # which is for text
    ]
    if options.preset not in known:
        parser.error(f"--preset must be one of {', '.join(known)}")
    page, preset = PRESETS[options.preset]
    options.model = page.__name__
    found = {n: v for n, v in preset.items() if n not in ("vocabulary_size", "image_shape")}
    pattern = found.pop("pattern", None)
    if pattern is not None:
        found["pattern"] = "block_local_2d"
        found["query_shape"], found["flange"] = list(pattern.query_shape), list(pattern.flange)
    if "num_mixtures" in found:
        found["likelihood"] = "logistics"
    others = []
    for name, value in found.items():
        if not hasattr(options, name):
            others.append(f"{name}={value!r}")
        else:
            set_missing(options, {name: value})
    options.more = others + options.more


def _fill(options):
    """Defaults, many of which depend on other options."""
    sparse = options.model == "sparse_transformer"
    steps = options.steps or math.ceil(options.train_images / options.batch_size)
    divide(options, steps)
    defaults = {
        **SIZES,
        "pattern": "strided" if sparse else "block_local_1d",
        "likelihood": "categorical",
        "num_mixtures": 10,
        "warmup_steps": options.steps // 10,
    }
    set_missing(options, defaults)
    kind, given = KINDS[options.dataset], (options.block_length, options.stride)
    set_missing(options, pattern_sizes(kind, options.likelihood, *given))


def _check(parser, options):
    if not options.temperature > 0:
        parser.error("--temperature must be above 0")
    if options.hidden_dim % options.num_heads:
        parser.error("--num-heads must divide --hidden-dim")
    if (options.dataset == "digits") != (options.data_dir is None):
        parser.error("--data-dir is where the files of cifar10 and imagenet32 are")
    if options.model == "sparse_transformer":
        if options.likelihood == "logistics":
            parser.error("--likelihood logistics is for image_transformer")
        if options.pattern.startswith("block_local"):
            parser.error("--pattern must be dense, strided or fixed for sparse_transformer")
    if options.likelihood == "logistics" and options.temperature != 1:
        parser.error("--temperature is for --likelihood categorical")
