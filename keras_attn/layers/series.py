"""Scale and patches of series of numbers with missing values."""

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.initializers import MatrixInitializer, redraw
from keras_attn.layers.pooling import Pool
from keras_attn.ops.checks import (
    check_choice,
    check_numbers,
    check_positive,
    check_shape,
    check_sizes,
    check_that,
)
from keras_attn.ops.shapes import size


@registry.register
class SeriesScaler(registry.MaskedLayer):
    """Scale each series of a batch by its own mean and deviation, or by its mean size.

        y = (x - loc) / scale
        std:   loc = mean of x, scale = sqrt(mean of (x - loc)^2 + epsilon)
        mean:  loc = 0,         scale = mean of |x|
        none:  loc = 0,         scale = 1
        fixed: those given, of each channel

    Means are over the observed values of one row and channel: not those that are NaN, nor those
    where the mask is False. `inverse` brings outputs back to the scale of the input. All is
    computed in float32, whatever the policy. Time and memory O(T C).

    Use it for forecasts and classes of series whose levels differ.

    Args:
        kind: "std", "mean", "none", or "fixed", which keeps levels that tell series apart.
        epsilon: float. Added to the variance.
        zero_scale: float. Scale in place of 0, such as that of a constant series. Without an
            observed value loc is 0, and a scale of 0 becomes 1.
        loc, scale: lists of C floats for "fixed", such as those of the training part; else None.

    Call arguments:
        values: float (B, T, C), or (B, T) for one channel; NaN where a value is missing.
        mask: optional bool (B, T), False at padding.

    Returns:
        Three tensors: y in the shape of `values`, NaN where no value is observed; loc and scale,
        (B, 1, C) or (B, 1), float32.

    Raises:
        ValueError: if `kind` is unknown, `epsilon` is below 0, `zero_scale` or a `scale` is not
            above 0, or `loc` and `scale` are not two lists of one length for "fixed" and else None.

    Example:
        >>> import keras, keras_attn
        >>> scaler = keras_attn.layers.SeriesScaler(epsilon=0.0)
        >>> y, loc, scale = scaler(keras.ops.array([[1.0, 3.0, float("nan")]]))
        >>> [float(x) for x in (y[0, 0], loc[0, 0], scale[0, 0])]
        [-1.0, 2.0, 1.0]

    Differs from the paper: missing values are left out, there are no learned factors, and kinds
        other than "std".

    Reference: [Kim et al., 2022](https://openreview.net/forum?id=cGDAkQo1C0p), section 3.1, eq. 1
        and 2.
    """

    def __init__(self, kind="std", epsilon=1e-5, zero_scale=1e-10, loc=None, scale=None, **kwargs):
        super().__init__(autocast=False, **kwargs)  # float16 ends at 65,504
        check_choice(("std", "mean", "none", "fixed"), kind=kind)
        check_numbers(0, epsilon=epsilon)
        check_positive(zero_scale=zero_scale)
        self.kind = kind
        self.epsilon = float(epsilon)
        self.zero_scale = float(zero_scale)
        is_fixed = kind == "fixed"
        wanted = 'a list of floats with the kind "fixed", else None'
        check_that(is_fixed is isinstance(loc, (list, tuple)), wanted, loc=loc)
        fits = isinstance(scale, (list, tuple)) and all(x > 0 for x in scale)
        fits = fits and len(scale) == len(loc or ()) if is_fixed else scale is None
        check_that(fits, f"as many floats above 0 as loc={loc}, or None", scale=scale)
        self.loc = list(map(float, loc)) if is_fixed else None
        self.scale = list(map(float, scale)) if is_fixed else None

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
        elif self.kind == "fixed":
            shape = (1, 1, -1) if len(values.shape) == 3 else (1, 1)
            loc = loc + ops.reshape(ops.convert_to_tensor(self.loc, dtype), shape)
            scale = scale * ops.reshape(ops.convert_to_tensor(self.scale, dtype), shape)
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
        # Keras on TensorFlow takes a summand (B, 1, 1) for the bias of an axis of B numbers.
        return ops.subtract(ops.cast(y, scale.dtype) * scale, -loc)

    def compute_mask(self, values, previous_mask=None):
        return None  # Padding is NaN in the output.

    def compute_output_spec(self, values, mask=None):
        dtype = keras.backend.result_type(values.dtype, "float32")
        row_shape = (values.shape[0], 1, *values.shape[2:])
        return (
            keras.KerasTensor(values.shape, self.compute_dtype),
            keras.KerasTensor(row_shape, dtype),
            keras.KerasTensor(row_shape, dtype),
        )


@registry.register
class SeriesPatches(registry.MaskedLayer):
    """Cut series into patches of consecutive values; missing values are 0.

        patch_i = x_{s + S i} .. x_{s + S i + P - 1},   i = 0 .. n - 1

    The last patch ends at the last value. There are n = (T - P) // S + 1 patches, and the first
    s = T - P - S (n - 1) values are in none. With `pad` missing values are first put in front of
    the series, up to a multiple of P. Channels have patches of their own. Time and memory O(n P C).

    Use it for attention to a long series, whose patches are its tokens.

    Args:
        patch_length: int. Values P of a patch.
        stride: int. Values S between the starts of neighbouring patches; by default P.
        pad: bool. If True, a series of any length is filled in front.
        join_mask: bool. If True, P numbers follow the values of a patch: 1 where a value is
            observed, else 0.
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
        count = self.num_patches(length)
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


@registry.register
class SeriesEmbedding(registry.MaskedLayer):
    """Embed the patches of series by a linear map, of each channel alone or of all together.

        joined channels:    x = [c; W [patch_1 of all channels] + b; ...],    one row a series
        separate channels:  x = [c; W patch_1 + b; W patch_2 + b; ...],       one row a channel

    c is a learned vector whose output a classifier may read. With separate channels the rows of the
    output are those of series 1, channel by channel, then those of series 2. A patch counts as
    padding where none of its values is observed, if `patches` masks empty ones. Time O(n P C D).

    Use it for models of series of numbers, in place of a token table.

    Args:
        hidden_dim: int. Width D.
        patches: a `SeriesPatches`; or int P, for a `SeriesPatches(P, pad=True, join_mask=True)`: 1
            for a vector at each time.
        scaler: a `SeriesScaler` that values pass first; None for none.
        separate_channels: bool. If True, each channel is a row of its own (channel independence).
        shared: bool. If False, separate channels have a W and b each.
        class_token: bool. If True, c is the first vector of each row.
        kernel_initializer: of W.

    Call arguments:
        values: float (B, T, C); NaN where a value is missing.
        masked: optional bool (B, C, n), True at patches that are replaced.
        masked_value: float. All values of those patches.
        mask: optional bool (B, T), False at padding.

    Returns:
        (B, n, D), or (B C, n, D) for separate channels; with c one vector more.

    Raises:
        ValueError: if a size is below 1, or `shared` is False for joined channels.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.SeriesEmbedding(16, 1)
        >>> layer(keras.ops.ones((3, 11, 2))).shape
        TensorShape([3, 11, 16])

    Differs from the paper: joined channels, numbers that say which values are observed, masks, c.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1.
    """

    weight_axes = {"kernel": (), "bias": (), "token": ()}

    def __init__(
        self,
        hidden_dim,
        patches=1,
        scaler=None,
        separate_channels=False,
        shared=True,
        class_token=False,
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # the scaler reads float32 values
        check_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        patches = registry.revive(patches)
        if isinstance(patches, int):
            patches = SeriesPatches(patches, pad=True, join_mask=True, dtype=self.dtype_policy)
        check_that(isinstance(patches, SeriesPatches), "a `SeriesPatches`", patches=patches)
        self.patches = patches
        self.scaler = registry.revive(scaler)
        is_scaler = scaler is None or isinstance(self.scaler, SeriesScaler)
        check_that(is_scaler, "a `SeriesScaler` or None", scaler=scaler)
        self.separate_channels, self.shared = bool(separate_channels), bool(shared)
        check_that(shared or separate_channels, "True for joined channels", shared=shared)
        self.class_token = bool(class_token)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def num_tokens(self, length):
        """Return the number of vectors of a series of a length."""
        return self.patches.num_patches(length) + self.class_token

    def build(self, values_shape, masked_shape=None):
        channels = values_shape[-1]
        known = len(values_shape) == 3 and channels is not None
        check_that(known, "(B, T, C) of a known C", values_shape=tuple(values_shape))
        for part in (self.scaler, self.patches):
            if part is not None:
                part.build(values_shape)
        width = self.patches.patch_length * (1 + self.patches.join_mask)
        matrix = width if self.separate_channels else channels * width, self.hidden_dim
        own = () if self.shared else (channels,)
        start = redraw(self.kernel_initializer)
        if own:
            axes = matrix[0], channels, self.hidden_dim
            start = MatrixInitializer(start, matrix, axes, channels, (1, 0, 2))
        self.kernel = self.add_weight((*own, *matrix), start, name="kernel")
        self.bias = self.add_weight((*own, self.hidden_dim), "zeros", name="bias")
        if self.class_token:
            self.token = self.add_weight((self.hidden_dim,), "zeros", name="token")

    def call(self, values, masked=None, masked_value=0.0, mask=None):
        x = self._patches(values, mask)
        if masked is not None:
            x = ops.where(ops.expand_dims(masked, -1), ops.cast(masked_value, x.dtype), x)
        x = ops.cast(x, self.compute_dtype)  # (B, C, n, P)
        if not self.separate_channels:
            x = ops.transpose(x, (0, 2, 1, 3))
            x = ops.reshape(x, (-1, size(x, 1), self.kernel.shape[0]))  # (B, n, C P)
        # Keras casts no weights of a layer that takes float32 values under any policy.
        kernel, bias = (ops.cast(weight, x.dtype) for weight in (self.kernel, self.bias))
        x = ops.matmul(x, kernel) + (bias if self.shared else ops.expand_dims(bias, 1))
        x = ops.reshape(x, (-1, size(x, -2), self.hidden_dim))
        if not self.class_token:
            return x
        token = ops.cast(self.token, x.dtype)
        token = ops.broadcast_to(token, (ops.shape(x)[0], 1, self.hidden_dim))
        return ops.concatenate([token, x], axis=1)

    def _patches(self, values, mask):
        if self.scaler is not None:
            values, mask = self.scaler(values, mask=mask)[0], None
        return self.patches(values, mask=mask)

    def compute_mask(self, values, previous_mask=None):
        if not self.patches.mask_empty or isinstance(values, keras.KerasTensor):
            return None
        mask = self.patches.compute_mask(values, previous_mask)  # (B, C, n)
        if self.separate_channels:
            mask = ops.reshape(mask, (-1, size(mask, 2)))
        else:
            mask = ops.any(mask, axis=1)
        return ops.pad(mask, [[0, 0], [1, 0]], constant_values=True) if self.class_token else mask

    def call_products(self, output_shape, values, masked=None):
        """Return the multiply-adds of a call."""
        rows, tokens, width = output_shape
        return rows * (tokens - self.class_token) * self.kernel.shape[-2] * width

    def compute_output_shape(self, values_shape, masked_shape=None):
        batch, length, channels = values_shape
        rows = batch
        if self.separate_channels:
            rows = None if batch is None else batch * channels
        return rows, None if length is None else self.num_tokens(length), self.hidden_dim


@registry.register
class SeriesPool(Pool):
    """Pool the outputs at the patches of each channel, and join the vectors of the channels.

        (B C, n, D) -> (B, C D), or (B, C n D) for "flatten"

    "flatten" joins the vectors of all patches, each zero where its patch is padding; the others are
    those of `layers.Pool`. Time and memory O(C n D).

    Use it for the classes of series whose channels are separate rows.

    Args:
        pooling: "flatten", a name of `layers.Pool`, or a list of those.
        num_channels: int. Number C of channels, each a row; 1 for joined ones.

    Call arguments:
        x: (B C, n, D).
        mask: optional bool (B C, n), False at padding.

    Returns:
        (B, C D), (B, C K D) for K poolings, or (B, C n D).

    Raises:
        ValueError: if `pooling` is unknown, `num_channels` is below 1, or x of "flatten" has an
            unknown n.

    Example:
        >>> import keras, keras_attn
        >>> pool = keras_attn.layers.SeriesPool("flatten", num_channels=3)
        >>> pool(keras.ops.ones((2 * 3, 5, 7))).shape
        TensorShape([2, 105])

    Differs from the paper: every pooling but "flatten".

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1, flatten layer.
    """

    decided_arguments = ("padding_at_end", "include_prompt", "token_id")

    def __init__(self, pooling="flatten", num_channels=1, **kwargs):
        super().__init__(
            "mean" if pooling == "flatten" else pooling, padding_at_end=False, **kwargs
        )
        check_sizes(num_channels=num_channels)
        self.pooling, self.num_channels = pooling, num_channels

    def build(self, x_shape, *other_shapes, **named_shapes):
        known = self.pooling != "flatten" or x_shape[1] is not None
        check_that(known, '(B C, n, D) of a known n for "flatten"', x_shape=tuple(x_shape))

    def call(self, x, prompt_lengths=None, mask=None, x_mask=None, token_ids=None):
        if self.pooling == "flatten":
            if mask is not None:
                x = ops.where(ops.expand_dims(mask, -1), x, 0)
            x = ops.reshape(x, (-1, x.shape[1] * x.shape[2]))
        else:
            x = super().call(x, mask=mask, x_mask=x_mask)
        return ops.reshape(x, (-1, self.num_channels * x.shape[-1]))

    def compute_output_shape(self, x_shape, *other_shapes, **named_shapes):
        rows, count, width = x_shape
        rows = None if rows is None else rows // self.num_channels
        vectors = count if self.pooling == "flatten" else len(self.names)
        return rows, None if vectors is None else self.num_channels * vectors * width
