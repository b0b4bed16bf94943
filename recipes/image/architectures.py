"""Models by name, with the chosen pattern."""

import math

from keras_attn import models, patterns

from ..model_arguments import build_model
from .shapes import token_grid


def build(options, kind):
    """Build the model `options.model` for images of an `ImageKind`."""
    if options.model == "vit":
        arguments = {
            "num_classes": kind.num_classes,
            "image_shape": kind.image_shape,
            "patch_size": options.patch_size,
            **options.sizes(),
            "dropout": options.dropout,
        }
        return build_model(models.vit, arguments, options.more)
    own = _image if options.model == "image_transformer" else _sparse
    arguments = {
        "vocabulary_size": kind.num_values + 2,
        "image_shape": kind.image_shape,
        **options.sizes(),
        "dropout": options.dropout,
        **own(options, kind),
    }
    return build_model(getattr(models, options.model), arguments, options.more)


def _image(options, kind):
    image_shape = token_grid(kind, options.likelihood)
    make = {
        "dense": patterns.Causal,
        "block_local_1d": lambda: patterns.BlockLocal1D(options.block_length, options.lookback),
        "block_local_2d": lambda: patterns.BlockLocal2D(
            image_shape, options.query_shape, options.flange
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
