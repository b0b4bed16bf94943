"""The base class of norms, and the norm that changes nothing."""

from keras_attn.registry import MaskedLayer, register


class Norm(MaskedLayer):
    """Base class of norms: a layer (..., D) -> (..., D) that treats each position by itself.

    A norm of one's own overrides `build` and `call`. It is saved with the residual that holds it,
    and each residual, and the end of a stack, has a copy with weights of its own.

    Call arguments:
        x: (B, T, D), or any other shape (..., D).

    Returns:
        The shape of `x`, in the compute dtype.

    Example:
        >>> import keras, keras_attn
        >>> class UnitLength(keras_attn.norms.Norm):
        ...     def call(self, x):
        ...         return keras.ops.normalize(x, axis=-1)
        >>> residual = keras_attn.residuals.PreNorm(norm=UnitLength())
    """

    depends_on_config_only = True

    def compute_output_shape(self, x_shape):
        return x_shape


@register
class NoNorm(Norm):
    """Return the input as it is.

        NoNorm(x) = x

    Cost: none.

    Use it for blocks whose residual keeps the scale in bounds by itself.

    Call arguments and returns:
        As `Norm`.

    Example:
        >>> import keras_attn
        >>> keras_attn.residuals.PostNorm(norm="none")
        PostNorm(norm=NoNorm())

    Differs from the paper: the paper's sum also has a learned factor.

    Reference: [Bachlechner et al., 2020](https://arxiv.org/abs/2003.04887), section 3.
    """

    def call(self, x):
        return x
