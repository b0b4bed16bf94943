"""Heads of models of series: forecasts, regression, and masked patches."""

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.initializers import MatrixInitializer
from keras_attn.layers.series import SeriesPool
from keras_attn.ops.checks import check_choice, check_rates, check_sizes, check_that
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.quantiles import checked_levels
from keras_attn.ops.random import replica_generator

# The parameters of each distribution, in the order of an output's last axis.
DISTRIBUTIONS = {
    "student_t": ("df", "loc", "scale"),
    "normal": ("loc", "scale"),
    "negative_binomial": ("total_count", "logits"),
}


class SeriesHead(registry.MaskedLayer):
    """Base class of heads from (B C, n, D) to the output of a model of series.

    Attributes:
        prediction_length: int H of a forecast; None for other outputs.
        quantiles: tuple of the levels of a forecast; None for none.
        distribution: name of the distribution whose parameters are the output; None for none.
    """

    prediction_length = quantiles = distribution = None

    def compute_mask(self, x, previous_mask=None):
        return None


@registry.register
class ForecastHead(SeriesHead):
    """Project the outputs at the patches of each channel to the next values of the series.

        y = Pool(x) W + b,   (B C, n, D) -> (B, H, C)

    With quantiles, or the parameters of a distribution, each next value has several numbers.
    `rescale` brings them to the scale of the series. Time and weights O(n D H) for "flatten".

    Use it for forecasts of a fixed number of steps, all at once.

    Args:
        prediction_length: int. Number H of steps.
        num_channels: int. Number C of channels.
        quantiles: tuple of floats between 0 and 1, whose quantiles are the output; None for points.
        distribution: "student_t", "normal" or "negative_binomial", whose parameters are the output;
            None for none.
        pooling: as `SeriesPool`.
        shared: bool. If False, each channel has a W and b of its own.
        dropout: float. Dropout rate of the pooled vectors.
        kernel_initializer: of W.

    Call arguments:
        x: (B C, n, D).

    Returns:
        Float32 (B, H, C); (B, H, C, Q) for Q quantiles; (B, H, C, K) for K parameters, which are
        df, loc and scale, or loc and scale, or total_count and logits.

    Raises:
        ValueError: if a size is below 1, a quantile is not between 0 and 1, both `quantiles` and
            `distribution` are given, or `distribution` is unknown.

    Example:
        >>> import keras, keras_attn
        >>> head = keras_attn.layers.ForecastHead(7, 3, quantiles=(0.1, 0.5, 0.9))
        >>> head(keras.ops.ones((2 * 3, 5, 16))).shape
        TensorShape([2, 7, 3, 3])

    Differs from the paper: quantiles and distributions, and every pooling but "flatten".

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1; the parameters:
        [Salinas et al., 2020](https://arxiv.org/abs/1704.04110), section 3.1, with the squareplus
        in place of the softplus.
    """

    weight_axes = {"kernel": (), "bias": ()}

    def __init__(
        self,
        prediction_length,
        num_channels,
        quantiles=None,
        distribution=None,
        pooling="flatten",
        shared=True,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(prediction_length=prediction_length, num_channels=num_channels)
        check_rates(dropout=dropout)
        if quantiles is not None:
            quantiles = checked_levels(quantiles, "quantiles")
            check_that(distribution is None, "None beside `quantiles`", distribution=distribution)
        if distribution is not None:
            check_choice(tuple(DISTRIBUTIONS), distribution=distribution)
        self.prediction_length, self.num_channels = prediction_length, num_channels
        self.quantiles, self.distribution = quantiles, distribution
        self.shared, self.dropout = bool(shared), dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.pool = SeriesPool(pooling, dtype=self.dtype_policy)
        self.drop = Dropout(dropout, dtype=self.dtype_policy)

    @property
    def pooling(self):
        """The pooling of `SeriesPool`."""
        return self.pool.pooling

    @property
    def num_outputs(self):
        """The numbers of each next value: 1, or those of quantiles or parameters."""
        if self.distribution is not None:
            return len(DISTRIBUTIONS[self.distribution])
        return 1 if self.quantiles is None else len(self.quantiles)

    def build(self, x_shape):
        self.pool.build(x_shape)
        _, width = self.pool.compute_output_shape((None, *x_shape[1:]))
        # A matrix for each number of a next value, of each channel if they do not share them.
        count, steps = self.num_outputs, self.prediction_length
        count = count if self.shared else self.num_channels * count
        start = MatrixInitializer(
            self.kernel_initializer, (width, steps), (width, count, steps), count, (1, 0, 2)
        )
        self.kernel = self.add_weight((count, width, steps), start, name="kernel")
        self.bias = self.add_weight((count, steps), "zeros", name="bias")

    def call(self, x, mask=None, training=None):
        x = self.drop(self.pool(x, mask=mask), training=training)
        x = ops.reshape(x, (-1, self.num_channels, x.shape[-1]))  # (B, C, F)
        count, (_, width, steps) = self.num_outputs, self.kernel.shape
        if self.shared:
            kernel = ops.reshape(ops.transpose(self.kernel, (1, 0, 2)), (width, -1))
            x = ops.matmul(x, kernel)  # (B, C, K H)
        else:
            kernel = ops.reshape(self.kernel, (self.num_channels, count, width, steps))
            x = ops.einsum("bcf,ckfh->bckh", x, kernel)
        x = ops.reshape(x, (-1, self.num_channels, count, steps))
        x = x + ops.reshape(self.bias, (-1, count, steps))
        x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        x = ops.transpose(x, (0, 3, 1, 2))  # (B, H, C, K)
        if self.distribution is not None:
            return _parameters(self.distribution, x)
        return x if self.quantiles is not None else ops.squeeze(x, -1)

    def rescale(self, y, scaler, loc, scale):
        """Return an output in the scale of series whose `loc` and `scale` (B, 1, C) are given."""
        if self.distribution is None:
            return scaler.inverse(y, loc, scale)
        return scale_parameters(self.distribution, y, loc, scale)

    def call_products(self, output_shape, x):
        """Return the multiply-adds of a call."""
        rows = output_shape[0] * self.num_channels * self.num_outputs
        return rows * self.kernel.shape[1] * self.kernel.shape[2]

    def compute_output_shape(self, x_shape):
        rows = None if x_shape[0] is None else x_shape[0] // self.num_channels
        shape = rows, self.prediction_length, self.num_channels
        is_point = self.quantiles is None and self.distribution is None
        return shape if is_point else (*shape, self.num_outputs)


def _squareplus(x):
    return (x + ops.sqrt(ops.square(x) + 4.0)) / 2.0


def _parameters(distribution, x):
    """Return the parameters (..., K) of a distribution for any numbers (..., K)."""
    parts = dict(zip(DISTRIBUTIONS[distribution], ops.unstack(x, axis=-1), strict=True))
    if "df" in parts:
        parts["df"] = 2.0 + _squareplus(parts["df"])  # only above 2 there is a variance
    if "scale" in parts:
        # Far below 0 the squareplus rounds to 0, by which the likelihood would divide.
        least = float(np.finfo("float32").eps)
        parts["scale"] = ops.maximum(_squareplus(parts["scale"]), least)
    if "total_count" in parts:
        parts["total_count"] = _squareplus(parts["total_count"])
    return ops.stack(list(parts.values()), axis=-1)


def scale_parameters(distribution, parameters, loc, scale):
    """Return the parameters (B, H, C, K) of y scale + loc for those of y.

    The mean of counts is multiplied by the scale; loc has no effect, so that they stay counts.
    """
    parts = dict(zip(DISTRIBUTIONS[distribution], ops.unstack(parameters, axis=-1), strict=True))
    if "logits" in parts:
        parts["logits"] = ops.log(scale) + parts["logits"]
    else:
        parts["loc"] = ops.subtract(parts["loc"] * scale, -loc)  # see `SeriesScaler.inverse`
        parts["scale"] = parts["scale"] * scale
    return ops.stack(list(parts.values()), axis=-1)


@registry.register
class RegressionHead(SeriesHead):
    """Predict targets of a whole series, with bounds if asked.

        y = Pool(x) W + b,   or   low + (high - low) sigmoid(Pool(x) W + b)

    Time and weights O(C D K).

    Use it for regression, such as a quality or a remaining time.

    Args:
        num_targets: int. Number K of targets.
        num_channels: int. Number C of channels, each a row of x; 1 for joined ones.
        target_range: (low, high); None for targets without bounds.
        pooling: as `SeriesPool`.
        dropout: float. Dropout rate of the pooled vectors.

    Call arguments:
        x: (B C, n, D).

    Returns:
        Float32 (B, K).

    Raises:
        ValueError: if a size is below 1, or `target_range` is not increasing.

    Example:
        >>> import keras, keras_attn
        >>> head = keras_attn.layers.RegressionHead(2, 3, target_range=(0, 10))
        >>> head(keras.ops.ones((4 * 3, 5, 16))).shape
        TensorShape([4, 2])

    Differs from the paper: the paper has no such head; transformers has.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1.
    """

    weight_axes = {"dense/kernel": (), "dense/bias": ()}

    def __init__(
        self, num_targets, num_channels=1, target_range=None, pooling="mean", dropout=0.0, **kwargs
    ):
        super().__init__(**kwargs)
        check_sizes(num_targets=num_targets, num_channels=num_channels)
        check_rates(dropout=dropout)
        if target_range is not None:
            target_range = tuple(target_range)
            rises = len(target_range) == 2 and target_range[0] < target_range[1]
            check_that(rises, "(low, high) with low < high", target_range=target_range)
        self.num_targets, self.num_channels, self.target_range = (
            num_targets,
            num_channels,
            target_range,
        )
        self.dropout = dropout
        self.pool = SeriesPool(pooling, num_channels, dtype=self.dtype_policy)
        self.drop = Dropout(dropout, dtype=self.dtype_policy)
        self.dense = keras.layers.Dense(num_targets, dtype="float32", name="dense")

    @property
    def pooling(self):
        """The pooling of `SeriesPool`."""
        return self.pool.pooling

    def build(self, x_shape):
        self.pool.build(x_shape)
        self.dense.build(self.pool.compute_output_shape(x_shape))

    def call(self, x, mask=None, training=None):
        y = self.dense(self.drop(self.pool(x, mask=mask), training=training))
        if self.target_range is None:
            return y
        low, high = self.target_range
        return ops.sigmoid(y) * (high - low) + low

    def compute_output_shape(self, x_shape):
        return self.pool.compute_output_shape(x_shape)[0], self.num_targets


@registry.register
class PatchMasking(registry.MaskedLayer):
    """Choose the patches that a model has to predict from the others.

    A share of the patches of each row, drawn anew in each step of training and always the same
    outside of it; or the last ones, as in a forecast. Time O(C n log n).

    Use it for pre-training by masked patches.

    Args:
        ratio: float in [0, 1). Share of the patches that are masked.
        num_last: int. Number of patches at the end that are masked in place of a share, or None.
        channel_consistent: bool. If True, the same patches are masked in all channels.
        value: float. Number that a model reads in place of each masked value.
        seed: int or None.

    Call arguments:
        patches: (B, C, n, P).

    Returns:
        Bool (B, C, n), True at masked patches: of n, n - int(n (1 - ratio)) in each row.

    Raises:
        ValueError: if `ratio` is outside [0, 1), `num_last` is below 1, or not below the number n.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.PatchMasking(0.4)
        >>> int(keras.ops.sum(keras.ops.cast(layer(keras.ops.ones((1, 1, 10, 4))), "int32")))
        4

    Differs from the paper: the share is drawn for each channel, as in transformers; a fixed choice
        outside of training.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.2.
    """

    def __init__(
        self, ratio=0.4, num_last=None, channel_consistent=False, value=0.0, seed=None, **kwargs
    ):
        super().__init__(**kwargs)
        check_rates(ratio=ratio)
        if num_last is not None:
            check_sizes(num_last=num_last)
        self.ratio, self.num_last, self.channel_consistent = (
            ratio,
            num_last,
            bool(channel_consistent),
        )
        self.value, self.seed = float(value), seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, patches, training=None):
        batch, (_, channels, count, _) = ops.shape(patches)[0], patches.shape
        if self.num_last is not None:
            check_that(self.num_last < count, f"below the {count} patches", num_last=self.num_last)
            masked = ops.arange(count) >= count - self.num_last
            return ops.broadcast_to(masked, (batch, channels, count))
        rows = batch, 1 if self.channel_consistent else channels, count
        if training:
            noise = keras.random.uniform(rows, seed=replica_generator(self.seed_generator))
        else:
            fixed = np.random.default_rng(0).random(rows[1:], "float32")
            noise = ops.broadcast_to(fixed, rows)
        rank = ops.argsort(ops.argsort(noise, axis=-1), axis=-1)  # the inverse permutation
        masked = rank >= int(count * (1 - self.ratio))
        return ops.broadcast_to(masked, (batch, channels, count))

    def compute_mask(self, patches, previous_mask=None):
        return None

    def compute_output_spec(self, patches, training=None):
        return keras.KerasTensor(patches.shape[:3], "bool")


@registry.register
class MaskedPatchHead(SeriesHead):
    """Predict the values of patches, and learn by the squared error at those that were masked.

        y = x W + b,   loss = mean over masked patches of mean((y - patch)^2)

    The loss is among the layer's losses, so that `fit` needs no targets. Time O(C n D P).

    Use it for pre-training by masked patches.

    Args:
        patch_length: int. Values P of a patch.
        num_channels: int. Number C of channels.
        class_token: bool. True if the first vector of a row is that of no patch.
        dropout: float. Dropout rate of x.

    Call arguments:
        x: (B C, n, D), or one vector more with `class_token`.
        patches: (B, C, n, P), the patches as they were.
        masked: bool (B, C, n), True at those that were masked.

    Returns:
        Float32 (B, C, n, P).

    Raises:
        ValueError: if a size is below 1.

    Example:
        >>> import keras, keras_attn
        >>> head, patches = keras_attn.layers.MaskedPatchHead(4, 3), keras.ops.ones((2, 3, 5, 4))
        >>> y = head(keras.ops.ones((2 * 3, 5, 16)), patches, keras.ops.ones((2, 3, 5), "bool"))
        >>> y.shape, len(head.losses)
        (TensorShape([2, 3, 5, 4]), 1)

    Differs from the paper: none.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.2.
    """

    weight_axes = {"dense/kernel": (), "dense/bias": ()}

    def __init__(self, patch_length, num_channels, class_token=False, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        check_sizes(patch_length=patch_length, num_channels=num_channels)
        check_rates(dropout=dropout)
        self.patch_length, self.num_channels = patch_length, num_channels
        self.class_token, self.dropout = bool(class_token), dropout
        self.drop = Dropout(dropout, dtype=self.dtype_policy)
        self.dense = keras.layers.Dense(patch_length, dtype="float32", name="dense")

    def build(self, x_shape, patches_shape=None, masked_shape=None):
        self.dense.build(x_shape)

    def call(self, x, patches, masked, training=None):
        y = self.dense(self.drop(x, training=training))
        y = y[:, 1:] if self.class_token else y
        y = ops.reshape(y, (-1, *patches.shape[1:]))
        errors = ops.mean(ops.square(y - ops.cast(patches, y.dtype)), axis=-1)
        errors = ops.where(masked, errors, 0.0)
        self.add_loss(ops.sum(errors) / (ops.sum(ops.cast(masked, y.dtype)) + 1e-10))
        return y

    def compute_output_shape(self, x_shape, patches_shape, masked_shape=None):
        return tuple(patches_shape)
