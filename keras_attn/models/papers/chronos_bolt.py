"""Chronos-Bolt, the second model of the authors of Chronos (Ansari et al., 2024)."""

from keras_attn import layers
from keras_attn.models.papers.t5 import t5
from keras_attn.models.patch_forecaster import PatchForecaster


def chronos_bolt(
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    key_dim=None,
    context_length=2048,
    prediction_length=64,
    patch_length=16,
    stride=None,
    quantiles=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    end_token=True,
    num_buckets=32,
    max_distance=128,
    gated=False,
    pattern="dense",
    num_decoder_layers=None,
    activation=None,
    epsilon=1e-6,
    name="chronos_bolt",
):
    """Build Chronos-Bolt, the blocks of a `t5` that read patches and give quantiles at once.

        x = Projection([patches; observed]);   encoder and decoder as T5's, the decoder of one token
        quantiles = Projection(decoder's state) scale + loc

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | dot + T5 bias | dense / causal / cross | in the score | pre, RMSNorm | stack | - | quantile |

    Cost: that of `t5` for `context_length` / `patch_length` tokens, and one step of the decoder.

    Use it for fast forecasts of one series, also without training on it (zero-shot).

    Args:
        num_layers, num_heads, hidden_dim, intermediate_dim, dropout, key_dim: as `t5`.
        context_length, prediction_length, quantiles: as `keras_attn.models.PatchForecaster`.
        patch_length, stride: of the `keras_attn.layers.SeriesPatches`.
        end_token: bool. If True, a learned token ends the patches.
        num_buckets, max_distance, gated, pattern, num_decoder_layers, activation, epsilon: as `t5`.

    Returns:
        A `PatchForecaster`, from values (B, T) to quantiles (B, H, Q).

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.chronos_bolt(num_layers=1, num_heads=2, hidden_dim=8,
        ...     prediction_length=5)
        >>> model(np.sin(np.arange(40.0)).reshape(1, 40)).shape
        TensorShape([1, 5, 9])

    Differs from the paper: as `t5`.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), whose authors describe it in
        [chronos-forecasting](https://github.com/amazon-science/chronos-forecasting).
    """
    sides = t5(
        1 + bool(end_token),
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout,
        key_dim,
        num_buckets,
        max_distance,
        gated,
        pad_id=None,
        pattern=pattern,
        num_decoder_layers=num_decoder_layers,
        activation=activation,
        epsilon=epsilon,
    )
    feed_forward = sides.encoder.blocks[0].feed_forward
    return PatchForecaster(
        sides.embedding,
        sides.encoder,
        sides.decoder,
        layers.SeriesPatches(patch_length, stride, pad=True, join_mask=True),
        layers.SeriesScaler(epsilon=0.0, zero_scale=1e-5),
        context_length,
        prediction_length,
        quantiles,
        intermediate_dim,
        feed_forward.activation,
        dropout,
        name=name,
    )
