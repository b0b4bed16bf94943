"""PatchTST (Nie et al., 2023)."""

import keras

from keras_attn import depth, layers, positions
from keras_attn.initializers import SinusoidTable
from keras_attn.models import assembly
from keras_attn.models.encoder_models import Classifier
from keras_attn.models.forecaster import Forecaster
from keras_attn.norms import BatchNorm
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.shapes import head_size


def patch_tst(
    context_length=336,
    num_channels=7,
    prediction_length=None,
    quantiles=None,
    distribution=None,
    num_classes=None,
    num_targets=None,
    target_range=None,
    masking=None,
    patch_length=16,
    stride=8,
    num_layers=3,
    num_heads=16,
    hidden_dim=128,
    intermediate_dim=256,
    dropout=0.2,
    activation="gelu",
    norm=None,
    residual="post_norm",
    position="learned",
    pooling=None,
    scaler="std",
    channel_attention=False,
    shared=True,
    shared_head=True,
    class_token=False,
    mask_empty=True,
    use_bias=True,
    attention_dropout=0.0,
    embedding_dropout=None,
    feed_forward_dropout=None,
    head_dropout=0.0,
    name="patch_tst",
):
    """Build PatchTST, an encoder of the patches of series of numbers.

        x = patches(scale(values)) W + b + P;  x = BN(x + SelfAttention(x)),  x = BN(x + FFN(x))
        forecast = rescale([x_1 .. x_n] W_h + b_h)

    Each channel is a row of its own, with the weights of all. One of `prediction_length`,
    `num_classes`, `num_targets` and `masking` chooses the head: forecasts, classes, regression,
    or pre-training by masked patches. Another model takes over the pre-trained encoder by
    `model.encoder.set_weights(pretrained.encoder.get_weights())`, and likewise the embedding and
    the position.

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | dense | learned | post, batch norm | stack | - | squared error, or quantiles |

    Cost: time O(C L n D (n + F)), and memory O(C L n (N n + F)) with the matrices of scores, for n
    patches of C channels.

    Use it for forecasts and classes of series, of several channels and with missing values.

    Args:
        context_length: int. Number T of values that the model reads.
        num_channels: int. Number C of channels.
        prediction_length: int. Number H of next values.
        quantiles: tuple of floats between 0 and 1, whose quantiles are predicted; None for none.
        distribution: "student_t", "normal" or "negative_binomial", whose parameters are predicted;
            None for none.
        num_classes: int. Number of classes.
        num_targets: int. Number of targets of a regression, such as a quality of a whole series.
        target_range: (low, high) of those targets; None for targets without bounds.
        masking: float. Share of the patches that are masked, and predicted from the others; or a
            `PatchMasking`.
        patch_length: int. Values of a patch.
        stride: int. Values between the starts of neighbouring patches.
        num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the sublayers' outputs, and by default of the embeddings and
            of the feed-forward layers' hidden layer.
        activation: name or function, of the feed-forward layers.
        norm: name or object of the norm axis; None for a `BatchNorm`.
        residual: name or object of the residual axis.
        position: "learned", "sinusoidal" for fixed ones, or an object of the position axis.
        pooling: "flatten", a name of `layers.Pool` or a list of those; None for "flatten" in
            forecasts, else "mean".
        scaler: a `SeriesScaler`, or "std", "mean" or "none" for one.
        channel_attention: bool. If True, the channels attend to each other at each patch.
        shared: bool. If False, each channel has an embedding of its own.
        shared_head: bool. If False, each channel has a forecast's head of its own.
        class_token: bool. If True, a learned vector precedes the patches of each channel.
        mask_empty: bool. If True, patches without an observed value are padding.
        use_bias: bool. If False, the feed-forward layers have no biases.
        attention_dropout: float. Dropout rate of the attention weights.
        embedding_dropout, feed_forward_dropout: float. By default `dropout`.
        head_dropout: float. Dropout rate of the pooled vectors.

    Returns:
        A `Forecaster`, from values (B, T, C), NaN where one is missing, to next values (B, H, C);
        with `num_classes` a `Classifier`.

    Raises:
        ValueError: if not exactly one of the four is given, or `quantiles`, `distribution` or
            `target_range` does not fit it.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.patch_tst(
        ...     24, 2, 7, quantiles=(0.1, 0.5, 0.9), num_layers=1, num_heads=2, hidden_dim=8)
        >>> model.output.shape
        (None, 7, 2, 3)

    Differs from the paper: no sum of the scores of successive layers, no repeated last value, the
        scaler has no learned factors.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3, appendix A.1.4.
    """
    heads = {
        "prediction_length": prediction_length,
        "num_classes": num_classes,
        "num_targets": num_targets,
        "masking": masking,
    }
    chosen = [name for name, value in heads.items() if value is not None]
    if len(chosen) != 1:
        received = ", ".join(f"{name}={value}" for name, value in heads.items())
        names = ", ".join(heads)
        raise ValueError(f"Exactly one of {names} must be given. Received: {received}.")
    _check_unused("prediction_length", chosen, quantiles=quantiles, distribution=distribution)
    _check_unused("num_targets", chosen, target_range=target_range)
    check_sizes(context_length=context_length, num_channels=num_channels)
    norm = BatchNorm() if norm is None else norm
    scaler = layers.SeriesScaler(scaler) if isinstance(scaler, str) else scaler
    embedding_dropout = dropout if embedding_dropout is None else embedding_dropout
    feed_forward_dropout = dropout if feed_forward_dropout is None else feed_forward_dropout

    def block(index):
        return layers.SeriesBlock(
            layers.MultiHeadAttention(
                num_heads, head_size(hidden_dim, num_heads), dropout=attention_dropout
            ),
            layers.FeedForward(
                intermediate_dim, activation, use_bias, dropout=feed_forward_dropout
            ),
            residual=assembly.residual_of(residual, norm),
            dropout=dropout,
            num_channels=num_channels if channel_attention else None,
        )

    patches = layers.SeriesPatches(patch_length, stride, mask_empty=mask_empty)
    embedding = layers.SeriesEmbedding(
        hidden_dim,
        patches,
        scaler=None if num_classes is None else scaler,
        separate_channels=True,
        shared=shared,
        class_token=class_token,
    )
    parts = {
        "embedding": embedding,
        "encoder": depth.Stack(block, num_layers, name="encoder"),
        "position": _position(position, embedding.num_tokens(context_length)),
        "dropout": embedding_dropout,
        "name": name,
    }
    if pooling is None:
        pooling = "flatten" if prediction_length is not None else "mean"
    if num_classes is not None:
        pooler = None if not head_dropout else keras.layers.Dropout(head_dropout)
        return Classifier(
            num_classes=num_classes,
            pooling=layers.SeriesPool(pooling, num_channels),
            pooler=pooler,
            series_shape=(context_length, num_channels),
            **parts,
        )
    if prediction_length is not None:
        head = layers.ForecastHead(
            prediction_length,
            num_channels,
            quantiles,
            distribution,
            pooling,
            shared_head,
            head_dropout,
        )
    elif num_targets is not None:
        head = layers.RegressionHead(num_targets, num_channels, target_range, pooling, head_dropout)
    else:
        if not isinstance(masking, layers.PatchMasking):
            masking = layers.PatchMasking(masking)
        head = layers.MaskedPatchHead(patch_length, num_channels, class_token, head_dropout)
    return Forecaster(
        head=head,
        context_length=context_length,
        num_channels=num_channels,
        scaler=scaler,
        masking=masking,
        **parts,
    )


def _check_unused(head, chosen, **arguments):
    """Refuse arguments of a head that is not chosen."""
    for name, value in arguments.items():
        check_that(value is None or head in chosen, f"None without `{head}`", **{name: value})


def _position(position, count):
    """Return the position for a name or an object, of `count` patches."""
    if position == "learned":
        normal = keras.initializers.RandomNormal(stddev=0.02)
        return positions.Learned(count, embeddings_initializer=normal)
    if position == "sinusoidal":
        table = positions.Learned(count, embeddings_initializer=SinusoidTable())
        table.trainable = False
        return table
    return position
