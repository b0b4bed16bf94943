"""The model of each name, with the pattern that is asked for."""

import math

from keras_attn import models, patterns
from recipes.options import page_arguments

MODELS = ("image_transformer", "sparse_transformer")
PATTERNS = ("dense", "block_local_1d", "block_local_2d", "strided", "fixed")
# The Image Transformer's default, and its least of a sequence of other length.
_BLOCK = 256


def build(options, kind):
    """The model `options.model` of images of a `Kind`."""
    page = getattr(models, options.model)
    own = _image if options.model == "image_transformer" else _sparse
    return page(
        **{
            "vocabulary_size": kind.num_values + 2,
            "image_shape": kind.image_shape,
            "num_layers": options.num_layers,
            "num_heads": options.num_heads,
            "hidden_dim": options.hidden_dim,
            "intermediate_dim": options.intermediate_dim,
            "dropout": options.dropout,
            **own(options, kind),
            **page_arguments(options.more, page),
        }
    )


def grid(options, kind):
    """The rows of an image, and the tokens of each: all values of a pixel, or one for the pixel."""
    height, width, channels = kind.image_shape
    return height, width if options.likelihood == "logistics" else width * channels


def pattern_sizes(options, kind):
    """The sizes that a pattern takes where none are given, by option.

    Blocks and strides are to an image as the papers' are to theirs, 32 rows of 96 tokens: 1-D
    blocks of 256 tokens, 2-D ones of 8 by 32 with 8 rows above and 16 columns aside, a row as
    stride, a quarter of it as summary.
    """
    rows, row = grid(options, kind)
    block = min(_BLOCK, max(1, rows * row // 4))
    block_rows, block_columns = max(1, rows // 4), max(1, row // 3)
    stride = options.stride or row
    return {
        "block_length": block,
        "lookback": options.block_length or block,
        "query_shape": [block_rows, block_columns],
        "flange": [block_rows, max(1, block_columns // 2)],
        "stride": row,
        "summary": max(1, stride // 4),
    }


def _image(options, kind):
    rows_and_row = grid(options, kind)
    make = {
        "dense": patterns.Causal,
        "block_local_1d": lambda: patterns.BlockLocal1D(options.block_length, options.lookback),
        "block_local_2d": lambda: patterns.BlockLocal2D(
            rows_and_row, options.query_shape, options.flange
        ),
        "strided": lambda: patterns.Strided(options.stride),
        "fixed": lambda: patterns.Fixed(options.stride, options.summary),
    }
    num_mixtures = options.num_mixtures if options.likelihood == "logistics" else None
    return {"pattern": make[options.pattern](), "num_mixtures": num_mixtures}


def _sparse(options, kind):
    if options.pattern == "dense":
        # A window of all tokens, and none beside it.
        return {"stride": math.prod(kind.image_shape)}
    summary = options.summary if options.pattern == "fixed" else None
    return {"stride": options.stride, "summary": summary}
