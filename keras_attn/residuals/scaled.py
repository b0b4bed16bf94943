"""Residuals with a learned or fixed factor: ReZero, LayerScale, DeepNorm."""

import keras
from keras import ops

from keras_attn.compat.keras_masks import get_keras_mask
from keras_attn.norms.batch_norm import masked_norm
from keras_attn.ops.checks import check_numbers, check_sizes
from keras_attn.registry import register
from keras_attn.residuals.residual import Residual


class _ScaledOutput(Residual):
    """Residual whose subclasses create `factor`, a weight that multiplies the sublayer's output."""

    takes_rows = True

    def before(self, x):
        return self.norm(x)

    def call(self, x, y):
        return x + ops.convert_to_tensor(self.factor) * y


@register
class ReZero(_ScaledOutput):
    """Add the sublayer's output times one learned number, which starts at 0.

        before(x) = norm(x),   after(x, y) = x + a y

    At first each block is the identity, so deep stacks train without a norm and without a warm-up.
    Weight decay would pull a to 0; exclude it by
    `optimizer.exclude_from_weight_decay(var_names=["factor"])`. Time and memory O(T D).

    Use it for deep stacks without norms.

    Args:
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.ReZero()

    Differs from the paper: none with the default norm.

    Reference: [Bachlechner et al., 2020](https://arxiv.org/abs/2003.04887), section 3, eq. 3.
    """

    weight_axes = {"factor": ()}

    def __init__(self, norm="none", **kwargs):
        super().__init__(norm, **kwargs)

    def build(self, x_shape, y_shape=None):
        super().build(x_shape)
        self.factor = self.add_weight((), "zeros", name="factor")


@register
class LayerScale(_ScaledOutput):
    """Add the sublayer's output times a learned number for each channel, which starts small.

        before(x) = norm(x),   after(x, y) = x + v * y

    v (D,) starts at `initial`: each block is close to the identity at first. A stack of such blocks
    adds one final norm of the same kind. Time and memory O(T D).

    Use it for deep encoders of images.

    Args:
        initial: float. The paper has 0.1 up to 18 layers, 1e-5 up to 24 and 1e-6 beyond.
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Raises:
        ValueError: if `initial` is no number.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.LayerScale(0.1)

    Differs from the paper: none.

    Reference: [Touvron et al., 2021](https://arxiv.org/abs/2103.17239), section 2, eq. 4.
    """

    needs_closing_norm = True
    weight_axes = {"factor": ()}

    def __init__(self, initial=1e-5, **kwargs):
        super().__init__(**kwargs)
        check_numbers(initial=initial)
        self.initial = float(initial)

    def build(self, x_shape, y_shape=None):
        super().build(x_shape)
        start = keras.initializers.Constant(self.initial)
        self.factor = self.add_weight((x_shape[-1],), start, name="factor")


@register
class DeepNorm(Residual):
    """Normalise the sum of the sublayer's output and its input times a constant above 1.

        before(x) = x,   after(x, y) = norm(a x + y),   a = (2 L)^(1/4)

    The larger a, the less a block changes, so deep stacks of `PostNorm` blocks train. The paper
    also draws the kernels of values, outputs and feed-forward layers (8 L)^(-1/4) times as wide.
    Time and memory O(T D).

    Use it for stacks of a hundred layers and more.

    Args:
        num_layers: int. Number of blocks L.
        scale: float. a in place of the formula's. For an encoder of N and a decoder of M layers the
            paper has 0.81 (N^4 M)^(1/16) and (3 M)^(1/4).
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Raises:
        ValueError: if `num_layers` < 1 or `scale` is no number.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.DeepNorm(num_layers=24)

    Differs from the paper: initial kernels are those of the layers, whatever the depth.

    Reference: [Wang et al., 2022](https://arxiv.org/abs/2203.00555), section 3.1, figure 2.
    """

    takes_rows = True

    def __init__(self, num_layers, scale=None, **kwargs):
        super().__init__(**kwargs)
        check_sizes(num_layers=num_layers)
        scale = (2 * num_layers) ** 0.25 if scale is None else scale
        check_numbers(scale=scale)
        self.num_layers = num_layers
        self.scale = float(scale)

    def derived_defaults(self):
        return {"scale": (2 * self.num_layers) ** 0.25}

    def call(self, x, y):
        return masked_norm(self.norm, self.scale * x + y, get_keras_mask(x))
