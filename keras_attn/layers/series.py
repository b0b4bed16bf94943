"""Scale and patches of series of numbers with missing values."""

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.ops.checks import (
    check_choice,
    check_numbers,
    check_positive,
    check_shape,
    check_sizes,
)
from keras_attn.ops.shapes import size


@registry.register
class SeriesScaler(registry.MaskedLayer):
    """Scale each series of a batch by its own mean and deviation, or by its mean size.

        y = (x - loc) / scale
        std:   loc = mean of x, scale = sqrt(mean of (x - loc)^2 + epsilon)
        mean:  loc = 0,         scale = mean of |x|
        none:  loc = 0,         scale = 1

    Means are over the observed values of one row and channel: not those that are NaN, nor those
    where the mask is False. `inverse` brings outputs back to the scale of the input. All is
    computed in float32, whatever the policy. Time and memory O(T C).

    Use it for forecasts and classes of series whose levels differ.

    Args:
        kind: "std", "mean" or "none".
        epsilon: float. Added to the variance.
        zero_scale: float. Scale in place of one that is 0, of a series of one value. Without an
            observed value loc is 0, and a scale of 0 becomes 1.

    Call arguments:
        values: float (B, T, C), or (B, T) for one channel; NaN where a value is missing.
        mask: optional bool (B, T), False at padding.

    Returns:
        Three tensors: y in the shape of `values`, NaN where no value is observed; loc and scale,
        (B, 1, C) or (B, 1), float32.

    Raises:
        ValueError: if `kind` is unknown, `epsilon` is below 0 or `zero_scale` is not above 0.

    Example:
        >>> import keras, keras_attn
        >>> scaler = keras_attn.layers.SeriesScaler(epsilon=0.0)
        >>> y, loc, scale = scaler(keras.ops.array([[1.0, 3.0, float("nan")]]))
        >>> [float(x) for x in (y[0, 0], loc[0, 0], scale[0, 0])]
        [-1.0, 2.0, 1.0]

    Differs from the paper: missing values are left out, `epsilon`, and the scale by mean size.

    Reference: [Kim et al., 2022](https://openreview.net/forum?id=cGDAkQo1C0p), section 3.1, eq. 1
        and 2, without learned factors.
    """

    def __init__(self, kind="std", epsilon=1e-5, zero_scale=1e-10, **kwargs):
        super().__init__(autocast=False, **kwargs)  # float16 ends at 65,504
        check_choice(("std", "mean", "none"), kind=kind)
        check_numbers(0, epsilon=epsilon)
        check_positive(zero_scale=zero_scale)
        self.kind = kind
        self.epsilon = float(epsilon)
        self.zero_scale = float(zero_scale)

    def call(self, values, mask=None):
        check_shape(values, "values", (None, None), (None, None, None))
        dtype = keras.backend.result_type(values.dtype, "float32")
        values = ops.cast(values, dtype)
        observed = observed_values(values, mask)
        x = ops.where(observed, values, 0.0)  # before any product: 0 times NaN is NaN
        weights = ops.cast(observed, dtype)
        count = ops.sum(weights, axis=1, keepdims=True)  # (B, 1, C)
        divisor = ops.maximum(count, 1.0)
        loc, scale = ops.zeros_like(count), ops.ones_like(count)
        if self.kind == "std":
            loc = ops.sum(x, axis=1, keepdims=True) / divisor
            scale = ops.sum(ops.square((x - loc) * weights), axis=1, keepdims=True) / divisor
            scale = scale + self.epsilon
            # The square root has no gradient at 0.
            scale = ops.where(scale > 0, ops.sqrt(ops.where(scale > 0, scale, 1.0)), 0.0)
        elif self.kind == "mean":
            scale = ops.sum(ops.abs(x), axis=1, keepdims=True) / divisor
        scale = ops.where(scale > 0, scale, ops.where(count > 0, self.zero_scale, 1.0))
        x = ops.where(observed, (x - loc) / scale, float("nan"))
        return ops.cast(x, self.compute_dtype), loc, scale

    def inverse(self, y, loc, scale):
        """Return y scale + loc in the dtype of `scale`.

        `y` is (B, H, C) or, with further axes such as quantiles, (B, H, C, Q); without an axis of
        channels (B, H) or (B, H, Q).
        """
        added = tuple(range(len(loc.shape), len(y.shape)))
        if added:
            loc, scale = ops.expand_dims(loc, added), ops.expand_dims(scale, added)
        return ops.cast(y, scale.dtype) * scale + loc

    def compute_mask(self, values, previous_mask=None):
        return None  # Padding is NaN in the output.

    def compute_output_spec(self, values, mask=None):
        dtype = keras.backend.result_type(values.dtype, "float32")
        of_row = (values.shape[0], 1, *values.shape[2:])
        return (
            keras.KerasTensor(values.shape, self.compute_dtype),
            keras.KerasTensor(of_row, dtype),
            keras.KerasTensor(of_row, dtype),
        )


@registry.register
class SeriesPatches(registry.MaskedLayer):
    """Cut series into patches of consecutive values; missing values are 0.

        patch_i = x_{s + S i} .. x_{s + S i + P - 1},   i = 0 .. n - 1

    The last patch ends at the last value. There are n = (T - P) // S + 1 patches, and the first
    s = T - P - S (n - 1) values are in none; with `pad` the series is first filled in front, by
    missing values, up to a multiple of P. Channels have patches of their own. Time and memory
    O(n P C).

    Use it for attention to a long series, whose patches are its tokens.

    Args:
        patch_length: int. Values P of a patch.
        stride: int. Values S between the starts of neighbouring patches; by default P.
        pad: bool. If True, a series of any length is filled in front.
        join_mask: bool. If True, a patch also has P numbers that are 1 where a value is observed
            and else 0, after its values.
        mask_empty: bool. If True, patches without an observed value are masked for later layers,
            as padding is.

    Call arguments:
        values: float (B, T, C), or (B, T) for one channel; NaN where a value is missing.
        mask: optional bool (B, T), False at padding.

    Returns:
        (B, C, n, P), or (B, n, P) for (B, T); with `join_mask` 2 P numbers in place of P. The Keras
        mask, with `mask_empty`, is (B, C, n) or (B, n).

    Raises:
        ValueError: if a size is below 1, or a series without `pad` is shorter than a patch.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.SeriesPatches(4, stride=2)
        >>> layer(keras.ops.ones((3, 11, 2))).shape
        TensorShape([3, 2, 4, 4])

    Differs from the paper: missing values, `pad`, and no repeated last value at the end.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1, patching.
    """

    def __init__(
        self, patch_length, stride=None, pad=False, join_mask=False, mask_empty=True, **kwargs
    ):
        super().__init__(**kwargs)
        stride = patch_length if stride is None else stride
        check_sizes(patch_length=patch_length, stride=stride)
        self.patch_length, self.stride = patch_length, stride
        self.pad, self.join_mask, self.mask_empty = bool(pad), bool(join_mask), bool(mask_empty)

    def num_patches(self, length):
        """Return the number n of patches of a series of a length."""
        if self.pad:
            length = length + -length % self.patch_length
        elif length < self.patch_length:
            raise ValueError(
                f"A series must have at least patch_length={self.patch_length} values, unless "
                f"`pad` fills shorter ones. Received: a series of {length}."
            )
        return (length - self.patch_length) // self.stride + 1

    def call(self, values, mask=None):
        check_shape(values, "values", (None, None), (None, None, None))
        observed = observed_values(values, mask)
        patches = self._cut(ops.where(observed, values, 0.0))
        if self.join_mask:
            are_observed = self._cut(ops.cast(observed, patches.dtype))
            patches = ops.concatenate([patches, are_observed], axis=-1)
        return patches

    def compute_mask(self, values, previous_mask=None):
        # The layers of a functional model read the masks of real tensors.
        if not self.mask_empty or isinstance(values, keras.KerasTensor):
            return None
        return ops.any(self._cut(observed_values(values, previous_mask)), axis=-1)

    def _cut(self, x):
        """Return the patches (B, C, n, P) or (B, n, P) of values; those before the first are 0."""
        length, width = size(x, 1), self.patch_length
        if self.pad:
            missing = ops.shape(x)[0], -length % width, *ops.shape(x)[2:]
            x = ops.concatenate([ops.zeros(missing, x.dtype), x], axis=1)
            length = length + -length % width
        count = (length - width) // self.stride + 1 if self.pad else self.num_patches(length)
        start = length - width - self.stride * (count - 1)
        if self.stride == width:
            x = ops.reshape(x[:, start:], (-1, count, width, *x.shape[2:]))  # (B, n, P, C)
        else:
            library = np if isinstance(length, int) else ops
            index = start + self.stride * library.reshape(library.arange(count), (-1, 1))
            x = ops.take(x, index + library.arange(width), axis=1)
        return x if len(x.shape) == 3 else ops.transpose(x, (0, 3, 1, 2))  # (B, C, n, P)

    def compute_output_shape(self, values_shape):
        batch, length, *channels = values_shape
        count = None if length is None else self.num_patches(length)
        width = self.patch_length * (1 + self.join_mask)
        return batch, *channels, count, width


def observed_values(values, mask=None):
    """Return bool, in the shape of series (B, T) or (B, T, C), True where a value is observed.

    A value is missing where it is NaN, or where a mask (B, T) is False.
    """
    observed = ops.logical_not(ops.isnan(values))
    if mask is None:
        return observed
    mask = ops.cast(mask, "bool")
    mask = mask if len(values.shape) == 2 else ops.expand_dims(mask, -1)
    return ops.logical_and(observed, mask)
