"""Data sets, models and patterns by name, and sizes of patterns that fit an image."""

from typing import NamedTuple

CLASSIFIERS = ("vit", "perceiver")
ENLARGER = "super_resolution_transformer"
MODELS = ("image_transformer", "sparse_transformer", ENLARGER, *CLASSIFIERS)
PATTERNS = ("dense", "block_local_1d", "block_local_2d", "strided", "fixed")
# The Image Transformer's 1-D block; smaller images have four blocks.
_BLOCK = 256


class ImageKind(NamedTuple):
    """Shape of the images of a data set, and numbers of values of a channel and of classes."""

    image_shape: tuple
    num_values: int
    num_classes: int | None = None


DATASETS = {
    "digits": ImageKind((8, 8, 1), 17, 10),
    "cifar10": ImageKind((32, 32, 3), 256, 10),
    "imagenet32": ImageKind((32, 32, 3), 256),
}


def token_grid(kind, likelihood):
    """Return the rows of an image and the tokens of a row: one a value, or one a pixel."""
    height, width, channels = kind.image_shape
    return height, width if likelihood == "logistics" else width * channels


def small_shape(kind, factor):
    """Return the shape of images whose pixels are squares of `factor` by `factor` pixels."""
    height, width, channels = kind.image_shape
    return height // factor, width // factor, channels


def pattern_sizes(kind, likelihood, block_length=None, stride=None):
    """Return default sizes of the patterns, a dict.

    Blocks and strides are in the papers' proportions, 32 rows of 96 tokens: 1-D blocks of 256
    tokens, 2-D ones of 8 by 32 with 8 rows above and 16 columns at each side, a row as stride, a
    quarter of it as summary.
    """
    rows, row = token_grid(kind, likelihood)
    block_length = block_length or min(_BLOCK, max(1, rows * row // 4))
    block_rows, block_columns = max(1, rows // 4), max(1, row // 3)
    stride = stride or row
    return {
        "block_length": block_length,
        "lookback": block_length,
        "query_shape": (block_rows, block_columns),
        "flange": (block_rows, max(1, block_columns // 2)),
        "stride": stride,
        "summary": max(1, stride // 4),
    }
