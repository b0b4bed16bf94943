"""What models and patterns are named, and which sizes fit an image."""

MODELS = ("image_transformer", "sparse_transformer")
PATTERNS = ("dense", "block_local_1d", "block_local_2d", "strided", "fixed")
# The Image Transformer's 1-D block, of which smaller images have four.
_BLOCK = 256


def grid(kind, likelihood):
    """The rows of an image, and the tokens of each: all values of a pixel, or one for the pixel."""
    height, width, channels = kind.image_shape
    return height, width if likelihood == "logistics" else width * channels


def pattern_sizes(kind, likelihood, block_length=None, stride=None):
    """The sizes that a pattern takes where none are given, a dict.

    Blocks and strides are to an image as the papers' are to theirs, 32 rows of 96 tokens: 1-D
    blocks of 256 tokens, 2-D ones of 8 by 32 with 8 rows above and 16 columns aside, a row as
    stride, a quarter of it as summary.
    """
    rows, row = grid(kind, likelihood)
    block_length = block_length or min(_BLOCK, max(1, rows * row // 4))
    block_rows, block_columns = max(1, rows // 4), max(1, row // 3)
    stride = stride or row
    return {
        "block_length": block_length,
        "lookback": block_length,
        "query_shape": [block_rows, block_columns],
        "flange": [block_rows, max(1, block_columns // 2)],
        "stride": stride,
        "summary": max(1, stride // 4),
    }
