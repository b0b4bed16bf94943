"""Batch normalisation."""

import keras
from keras import ops

from keras_attn.norms.norm import Norm
from keras_attn.ops.checks import check_numbers, check_that
from keras_attn.registry import register


@register
class BatchNorm(Norm):
    """Normalise each feature to mean 0 and variance 1 over the batch, then scale and shift it.

        training:   BatchNorm(x) = g (x - mean(x)) / sqrt(var(x) + epsilon) + b,
                    m <- r m + (1 - r) mean(x),   v <- r v + (1 - r) var'(x),   r = momentum
        inference:  BatchNorm(x) = g (x - m) / sqrt(v + epsilon) + b

    Mean and variance of a feature are over all rows and positions that Keras's mask does not leave
    out; var' divides by their number less one. The averages m and v (D,) are not trainable; g and b
    (D,) are learned. A frozen layer computes as in inference and keeps its averages. All is in
    float32. Time and memory O(T D).

    In training a row depends on the other rows of its batch, never on padding. Each replica of a
    strategy has the statistics of its own rows. Depths that run a block several times, or
    backwards, refuse this norm.

    Use it for encoders of series, such as PatchTST; not for small batches.

    Args:
        momentum: float in [0, 1]. Weight of the old averages.
        epsilon: float. Added to the variance.

    Call arguments:
        x: (B, T, D), or any other shape (..., D).
        mask: optional bool (B, T), False at positions that are left out.
        training: bool.

    Returns:
        As x, in the compute dtype.

    Raises:
        ValueError: if `momentum` is outside [0, 1], or `epsilon` is below 0.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PreNorm(norm=keras_attn.norms.BatchNorm())

    Differs from the paper: masks, and averages of all steps in place of a pass after training.

    Reference: [Ioffe and Szegedy, 2015](https://arxiv.org/abs/1502.03167), section 3, algorithms 1
        and 2; in Transformers of series: [Zerveas et al., 2021](https://arxiv.org/abs/2010.02803),
        section 3.1.
    """

    weight_axes = {"gamma": (), "beta": (), "mean": (), "variance": ()}
    depends_on_config_only = False  # it reads masks that Keras attaches to tensors

    def __init__(self, momentum=0.9, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        check_numbers(0, momentum=momentum, epsilon=epsilon)
        check_that(momentum <= 1, "at most 1", momentum=momentum)
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, x_shape):
        starts = {"gamma": "ones", "beta": "zeros", "mean": "zeros", "variance": "ones"}
        for name, start in starts.items():
            weight = self.add_weight(
                (x_shape[-1],),
                start,
                name=name,
                autocast=False,
                trainable=name in ("gamma", "beta"),
            )
            setattr(self, name, weight)

    def call(self, x, mask=None, training=None):
        x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        mean, variance = self.mean, self.variance
        if training and self.trainable:
            mean, variance = self._statistics(x, mask)
        scale = self.gamma * ops.rsqrt(variance + self.epsilon)
        return ops.cast((x - mean) * scale + self.beta, self.compute_dtype)

    def _statistics(self, x, mask):
        """Return mean and variance (D,) of the positions that count, and move the averages."""
        axes = tuple(range(len(x.shape) - 1))
        if mask is None:
            count = ops.cast(ops.prod(ops.shape(x)[:-1]), x.dtype)
            mean, variance = ops.mean(x, axis=axes), ops.var(x, axis=axes)
        else:
            counted = ops.expand_dims(ops.cast(mask, "bool"), -1)
            count = ops.sum(ops.cast(counted, x.dtype))
            divisor = ops.maximum(count, 1.0)
            mean = ops.sum(ops.where(counted, x, 0.0), axis=axes) / divisor
            squares = ops.where(counted, ops.square(x - mean), 0.0)
            variance = ops.sum(squares, axis=axes) / divisor
        unbiased = variance * (count / ops.maximum(count - 1.0, 1.0))
        # A batch without positions moves nothing.
        rate = ops.where(count > 0, 1.0 - self.momentum, 0.0)
        for average, new in ((self.mean, mean), (self.variance, unbiased)):
            average.assign(average + ops.cast(rate * (new - average), average.dtype))
        return mean, variance


def masked_norm(norm, x, mask):
    """Return `norm(x)`, by a mask for a norm that reads one.

    Sums of tensors, recomputation and masks given by name leave x without Keras's mask.
    """
    return norm(x, mask=mask) if isinstance(norm, BatchNorm) else norm(x)
