"""Models of the recipe, of the chosen sizes."""

import keras
import numpy as np

from keras_attn import depth, layers, models, norms, positions
from keras_attn.models import assembly
from keras_attn.ops.shapes import head_size

from .scores import LEVELS


def build_forecaster(options, channels):
    """Build a `patch_tst` that forecasts quantiles of `channels` values at a time."""
    return models.patch_tst(
        options.context,
        channels,
        prediction_length=options.horizon,
        quantiles=LEVELS,
        **_arguments(options),
    )


def build_classifier(options, values, num_classes):
    """Build a classifier of series: `patch_tst`, or one whose patches hold all channels.

    Args:
        options: the recipe's.
        values: (N, T, C), the series of the training, for `--scaler fixed`.
        num_classes: int.
    """
    channels, scaler = values.shape[2], _scaler(options.scaler, values)
    if options.channels == "separate":
        arguments = {**_arguments(options), "scaler": scaler}
        return models.patch_tst(options.context, channels, num_classes=num_classes, **arguments)

    hidden_dim = options.hidden_dim

    def block(index):
        return layers.SeriesBlock(
            layers.MultiHeadAttention(options.num_heads, head_size(hidden_dim, options.num_heads)),
            layers.FeedForward(options.intermediate_dim, "gelu", dropout=options.dropout),
            residual=assembly.residual_of(options.residual, norms.get(options.norm)),
            dropout=options.dropout,
        )

    patches = layers.SeriesPatches(
        options.patch_length, options.stride, join_mask=True, mask_empty=False
    )
    embedding = layers.SeriesEmbedding(hidden_dim, patches, scaler)
    normal = keras.initializers.RandomNormal(stddev=0.02)
    return models.Classifier(
        embedding,
        depth.Stack(block, options.num_layers, name="encoder"),
        num_classes,
        positions.Learned(embedding.num_tokens(options.context), embeddings_initializer=normal),
        pooling=layers.SeriesPool(options.pooling, 1),
        pooler=keras.layers.Dropout(options.head_dropout),
        dropout=options.dropout,
        series_shape=(options.context, channels),
    )


def _scaler(kind, values):
    if kind != "fixed":
        return layers.SeriesScaler(kind)
    loc, scale = np.nanmean(values, axis=(0, 1)), np.nanstd(values, axis=(0, 1))
    return layers.SeriesScaler(kind, loc=loc.tolist(), scale=np.where(scale > 0, scale, 1).tolist())


def _arguments(options):
    """Return arguments of `patch_tst`."""
    return {
        "patch_length": options.patch_length,
        "stride": options.stride,
        **options.sizes(),
        "dropout": options.dropout,
        "head_dropout": options.head_dropout,
        "norm": options.norm,
        "residual": options.residual,
        "pooling": options.pooling,
        "scaler": options.scaler,
    }
