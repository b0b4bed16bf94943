"""Norm axis: the scale of the numbers at each position."""

from keras_attn import registry
from keras_attn.norms.batch_norm import BatchNorm
from keras_attn.norms.dyt import DyT
from keras_attn.norms.layer_norm import LayerNorm
from keras_attn.norms.norm import NoNorm, Norm
from keras_attn.norms.rms_norm import RMSNorm

NAMES = {
    "batch_norm": BatchNorm,
    "dyt": DyT,
    "layer_norm": LayerNorm,
    "none": NoNorm,
    "rms_norm": RMSNorm,
}


def get(identifier, **layer_arguments):
    """Return the norm for a name, a config or an object.

    Args:
        identifier: "layer_norm", "rms_norm", "batch_norm", "dyt" or "none"; or a config, as
            `keras.saving.serialize_keras_object` makes it; or a `Norm`, which is returned.
        layer_arguments: arguments of a Keras layer that is made from a name, such as `dtype`.

    Returns:
        A `Norm`.

    Raises:
        ValueError: if the name is unknown, or `identifier` is no norm.

    Example:
        >>> from keras_attn import norms
        >>> norms.get("rms_norm")
        RMSNorm()
    """
    return registry.resolve(identifier, NAMES, "norm", base=Norm, **layer_arguments)


__all__ = ["BatchNorm", "DyT", "LayerNorm", "NoNorm", "Norm", "RMSNorm", "get"]
