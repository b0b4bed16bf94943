"""Models by name, with the chosen pattern."""

from keras_attn import layers, models, patterns, positions

from ..common.model_arguments import build_model
from .shapes import CLASSIFIERS, ENLARGER, small_shape, token_grid


def build(options, kind):
    """Build the model `options.model` for images of an `ImageKind`."""
    if options.model in CLASSIFIERS:
        arguments = {
            "num_classes": kind.num_classes,
            "image_shape": kind.image_shape,
            "patch_size": options.patch_size,
            **options.sizes(),
            "dropout": options.dropout,
        }
        builder = models.vit if options.model == "vit" else perceiver
        return build_model(builder, arguments, options.more)
    own = {"sparse_transformer": _sparse, ENLARGER: _enlarger}.get(options.model, _image)
    arguments = {
        "vocabulary_size": kind.num_values + 2,
        "image_shape": kind.image_shape,
        **options.sizes(),
        "dropout": options.dropout,
        **own(options, kind),
    }
    return build_model(getattr(models, options.model), arguments, options.more)


def perceiver(
    num_classes,
    image_shape,
    patch_size,
    num_layers,
    num_heads,
    hidden_dim,
    intermediate_dim,
    dropout,
    num_latents=16,
):
    """Build a classifier of images by the encoder of `models.perceiver`, of patches for tokens."""
    embedding = layers.PatchEmbedding(patch_size, hidden_dim, class_token=False)
    length = embedding.num_tokens(image_shape)
    text = models.perceiver(
        vocabulary_size=1,
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        dropout=dropout,
        num_latents=num_latents,
        max_length=length,
    )
    position = positions.Learned(length)
    how = {"position": position, "image_shape": image_shape, "pooling": "mean"}
    return models.Classifier(embedding, text.encoder, num_classes, **how, name="perceiver")


def _image(options, kind):
    num_mixtures = options.num_mixtures if options.likelihood == "logistics" else None
    return {"pattern": _pattern(options, kind), "num_mixtures": num_mixtures}


def _enlarger(options, kind):
    return {
        "pattern": _pattern(options, kind),
        "source_shape": small_shape(kind, options.factor),
    }


def _pattern(options, kind):
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
    return make[options.pattern]()


def _sparse(options, kind):
    if options.pattern == "dense":
        return {"factors": "full"}
    summary = options.summary if options.pattern == "fixed" else None
    return {"stride": options.stride, "summary": summary}
