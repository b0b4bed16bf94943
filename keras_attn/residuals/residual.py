"""The base class of residuals, and those that are a sum and norms."""

from keras_attn import norms, registry
from keras_attn.compat.keras_masks import get_keras_mask
from keras_attn.norms.batch_norm import masked_norm
from keras_attn.registry import MaskedLayer, build_once, register


class Residual(MaskedLayer):
    """Base class of residuals: `after(x, sublayer(before(x)))`, with a norm of its own.

    A residual of one's own overrides `call`, which is the `after` step, and `before`.

    Args:
        norm: value of the norm axis.

    Call arguments:
        x: (B, T, D), the input of the block.
        y: (B, T, D), the output of the sublayer.

    Returns:
        (B, T, D).

    Attributes:
        needs_closing_norm: True if the sum stays unnormalised, so a stack adds a final norm.
        takes_rows: True if x and y may also be (B, D), one position in decoding. Without it they
            keep the axis of length 1.
    """

    depends_on_config_only = True
    needs_closing_norm = False
    takes_rows = False

    def __init__(self, norm="layer_norm", **kwargs):
        super().__init__(**kwargs)
        self.norm = norms.get(norm, dtype=self.dtype_policy, name="norm")

    def build(self, x_shape, y_shape=None):
        build_once(self.norm, x_shape)

    def before(self, x):
        """Return the sublayer's input."""
        return x

    def after(self, x, y):
        """Join the block's input and the sublayer's output."""
        return self(x, y)

    def compute_output_shape(self, x_shape, y_shape=None):
        return x_shape

    def get_config(self):
        # A block copies its residual by the configuration: the norm is built with each copy.
        return {**super().get_config(), "norm": registry.serialize(registry.copy(self.norm))}


@register
class PostNorm(Residual):
    """Add the sublayer's output and normalise the sum.

        before(x) = x,   after(x, y) = norm(x + y)

    Time and memory O(T D).

    Use it for models of up to about twelve blocks, trained with a warm-up.

    Args:
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PostNorm(norm=keras_attn.norms.LayerNorm(1e-12))

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    takes_rows = True

    def call(self, x, y):
        return masked_norm(self.norm, x + y, get_keras_mask(x))


@register
class PreNorm(Residual):
    """Normalise the sublayer's input and leave the sum unnormalised.

        before(x) = norm(x),   after(x, y) = x + y

    The identity path reaches from the last block to the first, so deep stacks train without a
    warm-up; a stack of such blocks adds one final norm of the same kind. Time and memory O(T D).

    Use it for deep stacks, and training without a warm-up.

    Args:
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PreNorm(norm="rms_norm")

    Differs from the paper: none.

    Reference: [Wang et al., 2019](https://arxiv.org/abs/1906.01787), section 2.1, eq. 3;
        [Xiong et al., 2020](https://arxiv.org/abs/2002.04745), section 3.
    """

    needs_closing_norm = True
    takes_rows = True

    def before(self, x):
        return self.norm(x)

    def call(self, x, y):
        return x + y


@register
class OutputNorm(Residual):
    """Normalise the sublayer's output and leave the sum unnormalised.

        before(x) = x,   after(x, y) = x + norm(y)

    Each block adds numbers of the same size, whatever its weights. A stack of such blocks adds one
    final norm of the same kind. Time and memory O(T D).

    Use it for training that diverges at a high learning rate.

    Args:
        norm: value of the norm axis.

    Call arguments and returns:
        As `Residual`.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.OutputNorm(norm="rms_norm")

    Differs from the paper: none.

    Reference: [Liu et al., 2022](https://arxiv.org/abs/2111.09883), section 3.2;
        [OLMo 2, 2025](https://arxiv.org/abs/2501.00656), section 3.2.
    """

    needs_closing_norm = True
    takes_rows = True

    def call(self, x, y):
        return x + self.norm(y)


@register
class SandwichNorm(Residual):
    """Normalise the sublayer's input and its output, each by a norm of its own.

        before(x) = norm_1(x),   after(x, y) = x + norm_2(y)

    A stack of such blocks adds one final norm of the same kind. Time and memory O(T D).

    Use it for models with low precision, whose sums it bounds, and for Gemma's.

    Args:
        norm: value of the norm axis, of which both norms are copies.

    Call arguments and returns:
        As `Residual`.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.SandwichNorm(norm="rms_norm")

    Differs from the paper: none.

    Reference: [Ding et al., 2021](https://arxiv.org/abs/2105.13290), section 2.4.
    """

    needs_closing_norm = True
    takes_rows = True

    def __init__(self, norm="layer_norm", **kwargs):
        super().__init__(norm, **kwargs)
        self.output_norm = registry.copy(self.norm)

    def build(self, x_shape, y_shape=None):
        super().build(x_shape)
        build_once(self.output_norm, x_shape)

    def before(self, x):
        return self.norm(x)

    def call(self, x, y):
        return x + self.output_norm(y)
