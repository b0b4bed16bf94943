"""Chronos (Ansari et al., 2024)."""

from keras_attn import layers
from keras_attn.models.papers.t5 import t5
from keras_attn.models.token_forecaster import TokenForecaster


def chronos_t5(
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    key_dim=None,
    bins=None,
    context_length=512,
    prediction_length=64,
    num_samples=20,
    temperature=1.0,
    top_k=50,
    top_p=None,
    vocabulary_size=None,
    num_buckets=32,
    max_distance=128,
    gated=False,
    tied=True,
    start_id=0,
    pattern="dense",
    num_decoder_layers=None,
    activation=None,
    epsilon=1e-6,
    name="chronos_t5",
):
    """Build Chronos, a `t5` whose tokens are the binned values of a series.

        ids, scale = Bins(values);   encoder and decoder as T5's;   y = Center(id) * scale

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | dot + T5 bias | dense / causal / cross | in the score | pre, RMSNorm | stack | KV cache | LM |

    The loss is that of classes: nothing tells the model that neighbouring bins are close.

    Cost: that of `t5` for the last `context_length` values, and a step of the decoder for each
    value that is forecast.

    Use it for forecasts of one series of numbers, also without training on it (zero-shot).

    Args:
        num_layers, num_heads, hidden_dim, intermediate_dim, dropout, key_dim: as `t5`.
        bins: a `keras_attn.layers.SeriesBins`; by default that of the paper.
        context_length, prediction_length, num_samples, temperature, top_k, top_p: as
            `keras_attn.models.TokenForecaster`.
        vocabulary_size: int. By default the number of ids of `bins`.
        num_buckets, max_distance, gated, tied, start_id, pattern, num_decoder_layers: as `t5`.
        activation, epsilon: as `t5`.

    Returns:
        A `TokenForecaster`, from source ids (B, S) and target ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.chronos_t5(num_layers=1, num_heads=2, hidden_dim=8)
        >>> inputs, labels = model.training_ids(np.ones((1, 30)), np.ones((1, 5)))
        >>> model(inputs).shape
        TensorShape([1, 6, 4096])

    Differs from the paper: as `t5`.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), sections 3.1 to 3.3; sizes:
        appendix C.
    """
    bins = layers.SeriesBins() if bins is None else bins
    sides = t5(
        bins.num_tokens if vocabulary_size is None else vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout,
        key_dim,
        num_buckets,
        max_distance,
        gated,
        tied,
        bins.pad_id,
        start_id,
        pattern,
        num_decoder_layers,
        activation,
        epsilon,
    )
    parts = {part: getattr(sides, part) for part in sides.parts}
    return TokenForecaster(
        bins=bins,
        context_length=context_length,
        prediction_length=prediction_length,
        num_samples=num_samples,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        **parts,
        name=name,
    )
