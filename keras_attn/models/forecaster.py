"""Functional model of series of numbers: forecasts, regression, and masked patches."""

import keras
import numpy as np

from keras_attn import registry
from keras_attn.layers.series import SeriesEmbedding, SeriesScaler
from keras_attn.layers.series_heads import DISTRIBUTIONS, MaskedPatchHead, PatchMasking, SeriesHead
from keras_attn.models import assembly
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.dropout import Dropout


@registry.register
class Forecaster(Model):
    """Predict the next values of series of numbers, some of whose last values may be missing.

        y = rescale(Head(Encoder(E[scale(x)] + P)))

    A functional `keras.Model`, called with a dict of its input or with the input alone. Each
    channel is a row of its own; its outputs are in the scale of the input. The head decides what is
    predicted: next values, targets of a whole series, or masked patches.

    Args:
        embedding: a `SeriesEmbedding` with separate channels.
        encoder: of the depth axis.
        head: a `ForecastHead`, `RegressionHead` or `MaskedPatchHead`.
        context_length: int. Number T of values that the model reads.
        num_channels: int. Number C of channels.
        position: name or object of the position axis; None for none.
        scaler: a `SeriesScaler` or a kind of it.
        masking: a `PatchMasking`, which a `MaskedPatchHead` needs; None for others.
        dropout: float. Dropout rate of the embeddings.

    Call arguments:
        values: float (B, T, C); NaN where a value is missing.

    Returns:
        Float32. Of a `ForecastHead` (B, H, C), (B, H, C, Q) for quantiles or (B, H, C, K) for the
        parameters of a distribution; of a `RegressionHead` (B, K); of a `MaskedPatchHead`
        (B, C, n, P), in the scale of the scaled series.

    Raises:
        ValueError: if a part is not as described, or a size is below 1.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.patch_tst(24, 2, 7, num_layers=1, num_heads=2, hidden_dim=8)
        >>> type(model).__name__, model.output.shape
        ('Forecaster', (None, 7, 2))

    Differs from the paper: missing values, and heads for more than points.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1, figure 1.
    """

    parts = (
        "embedding",
        "encoder",
        "head",
        "context_length",
        "num_channels",
        "position",
        "scaler",
        "masking",
        "dropout",
    )

    def __init__(
        self,
        embedding,
        encoder,
        head,
        context_length,
        num_channels,
        position=None,
        scaler="std",
        masking=None,
        dropout=0.0,
        **kwargs,
    ):
        assembly.check_layers(embedding=embedding, encoder=encoder)
        check_sizes(context_length=context_length, num_channels=num_channels)
        separates = isinstance(embedding, SeriesEmbedding) and embedding.separate_channels
        wanted = "a `SeriesEmbedding` with `separate_channels=True`"
        check_that(separates, wanted, embedding=embedding)
        check_that(
            isinstance(head, SeriesHead), "a head of series, such as `ForecastHead`", head=head
        )
        is_masked = isinstance(head, MaskedPatchHead)
        wanted = "a `PatchMasking` with a `MaskedPatchHead`, and else None"
        check_that(isinstance(masking, PatchMasking) is is_masked, wanted, masking=masking)
        if isinstance(scaler, str):
            scaler = SeriesScaler(scaler, dtype=embedding.dtype_policy)
        position = assembly.position_of(position, embedding)
        drop = Dropout(dropout, dtype=embedding.dtype_policy, name="drop")
        values = keras.Input((context_length, num_channels), name="values")
        scaled, loc, scale = scaler(values)
        if is_masked:
            patches = embedding.patches(scaled)
            masked = masking(patches, training=None)
            x = embedding(scaled, masked=masked, masked_value=masking.value)
        else:
            x = embedding(scaled)
        x = x if position is None else position(x, None)
        states = encoder(assembly.drop_symbolic(drop, x))
        if is_masked:
            outputs = head(states, patches, masked, training=None)
        else:
            outputs = head(states, training=None)
        if head.prediction_length is not None:
            outputs = head.rescale(outputs, scaler, loc, scale)
        super().__init__(inputs={"values": values}, outputs=outputs, **kwargs)
        self.encoder_output = states
        self.embedding, self.encoder, self.head = embedding, encoder, head
        self.context_length, self.num_channels = context_length, num_channels
        self.position, self.scaler, self.masking = position, scaler, masking
        self.dropout, self.drop = dropout, drop

    @property
    def prediction_length(self):
        """Number H of next values; None for a model that predicts something else."""
        return self.head.prediction_length

    @property
    def quantiles(self):
        """The levels of the quantiles, a tuple; None for a model without."""
        return self.head.quantiles

    @property
    def distribution(self):
        """The name of the distribution whose parameters are the output; None for none."""
        return self.head.distribution

    def sample(self, values, num_samples=100, seed=None):
        """Draw next values from the distribution that a model predicts.

        Args:
            values: float (B, T, C), as in a call.
            num_samples: int. Number of draws for each next value.
            seed: int or None.

        Returns:
            A NumPy array (B, num_samples, H, C).

        Raises:
            ValueError: if the model predicts no distribution, or `num_samples` < 1.
        """
        check_sizes(num_samples=num_samples)
        if self.distribution is None:
            raise ValueError(
                "`sample` needs a model of a distribution, such as "
                '`patch_tst(..., distribution="student_t")`. '
                f"Received: distribution=None in {self.name!r}."
            )
        parameters = np.asarray(self.predict(values, verbose=0), "float64")
        names = DISTRIBUTIONS[self.distribution]
        parts = dict(zip(names, np.moveaxis(parameters, -1, 0), strict=True))
        draws, generator = (num_samples, *parameters.shape[:-1]), np.random.default_rng(seed)
        if self.distribution == "negative_binomial":
            # NumPy takes the probability of the other outcome, which must not round to 0.
            others = 1 / (1 + np.exp(np.clip(parts["logits"], -700, 30)))
            samples = generator.negative_binomial(parts["total_count"], others, draws)
        else:
            noise = (
                generator.standard_t(parts["df"], draws)
                if self.distribution == "student_t"
                else generator.standard_normal(draws)
            )
            samples = parts["loc"] + parts["scale"] * noise
        return np.moveaxis(samples, 0, 1)
