"""Bins of a series' values: numbers to token ids and back."""

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.ops.checks import check_numbers, check_sizes, check_that


@registry.register
class SeriesBins(registry.Composite, keras.layers.Layer):
    """Turn the values of a series into token ids: those of the bins of its scaled values.

        scale = mean |x_t| over observed t,   id_t = number of boundaries <= x_t / scale, + specials

    Bins have equal widths, except the first and the last one, which are open. A missing value, NaN,
    has the id of padding; the value 0 has a bin. The scale is 1 where the mean is 0 or nothing is
    observed. All is computed in float32 under any policy: rounded otherwise, a value at a boundary
    would have another id than in the original. Time O(T).

    Use it for forecasters that read and write a series as tokens, such as Chronos.

    Args:
        num_tokens: int. Number of ids, those of special tokens included.
        low, high: floats. Centers of the first and of the last bin, in units of the scale.
        num_special: int. Number of ids before those of bins, at least 1.
        pad_id: int. Id of missing values, below `num_special`.
        end_id: int. Id of the token after the last value, below `num_special`.
        append_end: bool. If True, the end token is appended.

    Call arguments:
        values: float (B, T), NaN where a value is missing.

    Returns:
        Ids int32 (B, T), or (B, T + 1) with the end token, and the scale float32 (B,).

    Raises:
        ValueError: if a size is too small, `low` is not below `high`, a special id is not below
            `num_special`, or `pad_id` and `end_id` are equal.

    Example:
        >>> import keras_attn, numpy as np
        >>> bins = keras_attn.layers.SeriesBins(num_tokens=8, low=-2, high=2)
        >>> ids, scale = bins(np.array([[1.0, np.nan, -3.0]]))
        >>> ids.numpy().tolist(), scale.numpy().tolist()
        ([[6, 0, 4, 1]], [2.0])
        >>> bins.decode(ids, scale).numpy().tolist()
        [[2.0, -4.0, -2.0, -4.0]]

    Differs from the paper: none.

    Reference: [Ansari et al., 2024](https://arxiv.org/abs/2403.07815), section 3.1, eq. 1.
    """

    weight_axes = {}

    def __init__(
        self,
        num_tokens=4096,
        low=-15.0,
        high=15.0,
        num_special=2,
        pad_id=0,
        end_id=1,
        append_end=True,
        **kwargs,
    ):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.built = True  # It has no weights, and its methods need no call before.
        check_sizes(num_special=num_special)
        check_sizes(least=num_special + 3, num_tokens=num_tokens)
        check_numbers(low=low, high=high)
        check_that(low < high, f"above low={low}", high=high)
        for name, token in {"pad_id": pad_id, "end_id": end_id}.items():
            check_sizes(least=0, **{name: token})
            check_that(token < num_special, f"below num_special={num_special}", **{name: token})
        check_that(pad_id != end_id, "another id than that of padding", end_id=end_id)
        self.num_tokens, self.num_special = num_tokens, num_special
        self.low, self.high = low, high
        self.pad_id, self.end_id, self.append_end = pad_id, end_id, bool(append_end)
        self.num_bins = num_tokens - num_special - 1
        self._centers = _linspace(low, high, self.num_bins)
        middles = (self._centers[1:] + self._centers[:-1]) / np.float32(2)
        self._boundaries = np.concatenate([[-1e20], middles, [1e20]]).astype("float32")

    def call(self, values):
        scale = self.scale_of(values)
        return self.encode(values, scale), scale

    def scale_of(self, values):
        """Return the scale (B,) of values (B, T)."""
        values = ops.convert_to_tensor(values, "float32")
        is_observed = ops.logical_not(ops.isnan(values))
        total = ops.sum(ops.where(is_observed, ops.abs(values), 0.0), axis=-1)
        count = ops.sum(ops.cast(is_observed, "float32"), axis=-1)
        mean = total / ops.maximum(count, 1.0)
        return ops.where(mean > 0, mean, 1.0)

    def encode(self, values, scale):
        """Return the ids int32 (B, T) of values (B, T) by a scale (B,), and the end token."""
        values = ops.convert_to_tensor(values, "float32")
        is_observed = ops.logical_not(ops.isnan(values))
        scaled = ops.where(is_observed, values, 0.0) / ops.expand_dims(scale, -1)
        # The nearest center is at most one bin off; a comparison with both boundaries is exact.
        width = (self.high - self.low) / (self.num_bins - 1)
        nearest = ops.round((scaled - self.low) / width)
        nearest = ops.cast(ops.clip(nearest, 0.0, self.num_bins - 1.0), "int32")
        passed = [scaled >= ops.take(self._boundaries, nearest + side) for side in (0, 1)]
        count = nearest + sum(ops.cast(x, "int32") for x in passed)
        ids = ops.minimum(count + self.num_special, self.num_tokens - 1)
        ids = ops.where(is_observed, ids, self.pad_id)
        if not self.append_end:
            return ids
        return ops.concatenate([ids, ops.full_like(ids[:, :1], self.end_id)], axis=1)

    def decode(self, token_ids, scale):
        """Return the values float32 (B, ...), centers of bins, of ids (B, ...), by a scale (B,).

        Ids of special tokens have the value of the first bin.
        """
        token_ids = ops.convert_to_tensor(token_ids)
        indices = ops.clip(token_ids - (self.num_special + 1), 0, self.num_bins - 1)
        scale = ops.reshape(scale, (-1, *[1] * (len(token_ids.shape) - 1)))
        return ops.take(self._centers, indices) * scale

    def compute_output_shape(self, input_shape):
        batch_size, length = input_shape
        has_end = self.append_end and length is not None
        return (batch_size, length + 1 if has_end else length), (batch_size,)

    def compute_output_spec(self, values):
        ids, scale = self.compute_output_shape(values.shape)
        return keras.KerasTensor(ids, "int32"), keras.KerasTensor(scale, "float32")


def _linspace(low, high, count):
    """Return `count` equal steps from `low` to `high`, rounded as those of PyTorch.

    It steps from the nearer end, in float32 with one rounding of each product and sum.
    """
    low, high = np.float32(low), np.float32(high)
    step, index = (high - low) / np.float32(count - 1), np.arange(count)
    first = np.float64(low) + np.float64(step) * index
    second = np.float64(high) - np.float64(step) * index[::-1]
    return np.where(index < count // 2, first, second).astype("float32")
