"""A functional model that forecasts a series of numbers token by token."""

from keras import ops

from keras_attn import registry
from keras_attn.layers.series_bins import SeriesBins
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.ops.checks import check_positive, check_sizes, check_that


@registry.register
class TokenForecaster(EncoderDecoder):
    """Forecast a series by tokens of its values: `p(y_t | y_<t, x)`, x and y ids of bins.

        ids, scale = Bins(values),   logits = EncoderDecoder(ids, target ids)

    An `EncoderDecoder` with the bins of its values. `keras_attn.generation.sample_paths` draws
    paths of a series from it; `training_ids` makes what `fit` reads.

    Args:
        bins: a `keras_attn.layers.SeriesBins`.
        context_length: int. Number of the last values of a series that are read.
        prediction_length: int. Number of values that are drawn at once. Longer forecasts continue
            after the median of the paths.
        num_samples: int. Number of paths that are drawn by default.
        temperature, top_k, top_p: of `keras_attn.generation.Sample`, by default.
        parts: as of `EncoderDecoder`.

    Call arguments:
        source_ids: int32 (B, S), ids of values; padding, also in front and inside, where values are
            missing.
        target_ids: int32 (B, T).

    Returns:
        Logits (B, T, V), float32.

    Raises:
        ValueError: if a size is below 1, `temperature` is not above 0, `bins` has another `pad_id`
            than the model, or it has more tokens.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.chronos_t5(num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, prediction_length=4)
        >>> values = np.sin(np.arange(40.0)).reshape(2, 20)
        >>> keras_attn.generation.sample_paths(model, values, num_samples=3, seed=1).shape
        TensorShape([2, 3, 4])

    Differs from the paper: none.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), sections 3.1 to 3.3.
    """

    parts = (
        *EncoderDecoder.parts,
        "bins",
        "context_length",
        "prediction_length",
        "num_samples",
        "temperature",
        "top_k",
        "top_p",
    )

    def __init__(
        self,
        *,
        bins,
        context_length=512,
        prediction_length=64,
        num_samples=20,
        temperature=1.0,
        top_k=50,
        top_p=None,
        **parts,
    ):
        sizes = {"context_length": context_length, "prediction_length": prediction_length}
        check_sizes(**sizes, num_samples=num_samples)
        check_positive(temperature=temperature)
        super().__init__(**parts)
        most = self.target_embedding.vocabulary_size
        fits = isinstance(bins, SeriesBins) and bins.pad_id == self.pad_id
        wanted = f"a `SeriesBins` with pad_id={self.pad_id} and at most {most} tokens"
        check_that(fits and bins.num_tokens <= most, wanted, bins=bins)
        self.bins = bins
        self.context_length, self.prediction_length = context_length, prediction_length
        self.num_samples, self.temperature = num_samples, temperature
        self.top_k, self.top_p = top_k, top_p

    @property
    def first_id(self):
        """The id before the first token of a target."""
        return self.pad_id if self.start_id is None else self.start_id

    def training_ids(self, values, targets):
        """Return the inputs of the model and its labels, for a loss that ignores padding.

        Args:
            values: float (B, T), of which the last `context_length` are read.
            targets: float (B, H), the values after them. Missing ones are no labels.

        Returns:
            A dict of `source_ids` and `target_ids`, and labels int32 of the shape of the latter.
        """
        source_ids, scale = self.bins(ops.convert_to_tensor(values)[:, -self.context_length :])
        labels = self.bins.encode(targets, scale)
        start = ops.full_like(labels[:, :1], self.first_id)
        target_ids = ops.concatenate([start, labels[:, :-1]], axis=1)
        return {"source_ids": source_ids, "target_ids": target_ids}, labels
