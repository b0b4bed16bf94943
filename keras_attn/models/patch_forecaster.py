"""A functional model that forecasts quantiles of a series from its patches, all at once."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.layers.residual_projection import ResidualProjection
from keras_attn.layers.series import SeriesPatches, SeriesScaler
from keras_attn.models import assembly
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.quantiles import checked_levels


@registry.register
class PatchForecaster(Model):
    """Forecast quantiles of the next values of one series by an encoder and a decoder.

        x = Input([patches of (values - loc) / scale; observed]),   c = Encoder([x; E[1]])
        quantiles = Head(Decoder(E[0], c)) scale + loc

    The decoder reads one token, and its state gives all quantiles of all values. A functional
    `keras.Model`, called with a dict of its input or with the input alone. Each channel of a series
    is a row of its own.

    Args:
        embedding: a `TokenEmbedding` of the decoder's token, with id 0, and of that which ends the
            patches, with id 1; without id 1 no token ends them. It has no padding.
        encoder, decoder: of the depth axis; the decoder's blocks have cross-attention.
        patches: a `SeriesPatches` of series of any length, with the mask in its patches.
        scaler: a `SeriesScaler`.
        context_length: int. Number of the last values that are read.
        prediction_length: int. Number H of values that are forecast.
        quantiles: levels of the quantiles, floats in (0, 1).
        intermediate_dim: int. Width of the hidden layers of `Input` and `Head`.
        activation: name or function, of `Input` and `Head`.
        dropout: float. Dropout rate in `Input` and `Head`, and of what both stacks read.

    Call arguments:
        values: float (B, T), NaN where a value is missing.

    Returns:
        Float32 (B, H, Q), one for each level.

    Raises:
        ValueError: if a part is not as described, or a size is below 1.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.chronos_bolt(num_layers=1, num_heads=2, hidden_dim=8)
        >>> model(np.ones((2, 30))).shape
        TensorShape([2, 64, 9])

    Differs from the paper: none.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), whose authors describe it in
        [chronos-forecasting](https://github.com/amazon-science/chronos-forecasting).
    """

    parts = (
        "embedding",
        "encoder",
        "decoder",
        "patches",
        "scaler",
        "context_length",
        "prediction_length",
        "quantiles",
        "intermediate_dim",
        "activation",
        "dropout",
    )
    distribution = None  # as of a `Forecaster` of quantiles

    def __init__(
        self,
        embedding,
        encoder,
        decoder,
        patches,
        scaler,
        context_length=2048,
        prediction_length=64,
        quantiles=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        intermediate_dim=3072,
        activation="relu",
        dropout=0.0,
        **kwargs,
    ):
        assembly.check_layers(embedding=embedding, encoder=encoder, decoder=decoder)
        assembly.check_causal(decoder)
        check_sizes(context_length=context_length, prediction_length=prediction_length)
        quantiles = checked_levels(quantiles, "quantiles")
        fits = isinstance(patches, SeriesPatches) and patches.pad and patches.join_mask
        check_that(fits, "a `SeriesPatches` with `pad` and `join_mask`", patches=patches)
        check_that(isinstance(scaler, SeriesScaler), "a `SeriesScaler`", scaler=scaler)
        check_that(embedding.pad_id is None, "one without padding", embedding=embedding)
        policy, width = embedding.dtype_policy, embedding.hidden_dim
        sizes = intermediate_dim, activation, dropout
        read = ResidualProjection(width, *sizes, dtype=policy, name="input_projection")
        # Outputs of a model are float32 under any policy.
        count = len(quantiles) * prediction_length
        head = ResidualProjection(count, *sizes, dtype="float32", name="head")
        drop = Dropout(dropout, dtype=policy, name="drop")
        values = keras.Input((None,), name="values")
        scaled, loc, scale = scaler(values[:, -context_length:])
        x = patches(scaled)  # (B, n, 2 P)
        mask = ops.any(x[..., patches.patch_length :] > 0, axis=-1)
        x = read(x)
        first = ops.zeros_like(loc, dtype="int32")  # (B, 1)
        start = assembly.drop_symbolic(drop, embedding(first))
        if embedding.vocabulary_size > 1:
            x = ops.concatenate([x, embedding(ops.ones_like(first))], axis=1)
            mask = ops.concatenate([mask, ops.equal(first, 0)], axis=1)
        context = encoder(assembly.drop_symbolic(drop, x), padding_mask=mask)
        states = decoder(start, context, context_padding_mask=mask)  # (B, 1, D)
        # In the original's order, by which its weights can be copied.
        outputs = ops.reshape(head(states), (-1, len(quantiles), prediction_length))
        outputs = scaler.inverse(ops.transpose(outputs, (0, 2, 1)), loc, scale)
        super().__init__(inputs={"values": values}, outputs=outputs, **kwargs)
        self.embedding, self.encoder, self.decoder = embedding, encoder, decoder
        self.patches, self.scaler = patches, scaler
        self.context_length, self.prediction_length = context_length, prediction_length
        self.quantiles, self.intermediate_dim = quantiles, intermediate_dim
        self.activation, self.dropout, self.drop = activation, dropout, drop
        self.input_projection, self.head = read, head
