"""Residual axis: the sum around a sublayer, `after(x, sublayer(before(x)))`."""

from keras_attn import registry
from keras_attn.residuals.gate import Gate
from keras_attn.residuals.residual import OutputNorm, PostNorm, PreNorm, Residual, SandwichNorm
from keras_attn.residuals.scaled import DeepNorm, LayerScale, ReZero

NAMES = {
    "gate": Gate,
    "layer_scale": LayerScale,
    "output_norm": OutputNorm,
    "post_norm": PostNorm,
    "pre_norm": PreNorm,
    "re_zero": ReZero,
    "sandwich_norm": SandwichNorm,
}


def get(identifier, **layer_arguments):
    """Return the residual for a name, a config or an object.

    Args:
        identifier: "post_norm", "pre_norm", "output_norm", "sandwich_norm", "re_zero",
            "layer_scale" or "gate"; or a config, as `keras.saving.serialize_keras_object` makes it;
            or a `Residual`, which is returned.
        layer_arguments: arguments of a Keras layer that is made from a name, such as `dtype`.

    Returns:
        A `Residual`.

    Raises:
        ValueError: if the name is unknown, or `identifier` is no residual.

    Example:
        >>> from keras_attn import residuals
        >>> residuals.get("pre_norm")
        PreNorm()
    """
    return registry.resolve(identifier, NAMES, "residual", base=Residual, **layer_arguments)


__all__ = [
    "DeepNorm",
    "Gate",
    "LayerScale",
    "OutputNorm",
    "PostNorm",
    "PreNorm",
    "ReZero",
    "Residual",
    "SandwichNorm",
    "get",
]
