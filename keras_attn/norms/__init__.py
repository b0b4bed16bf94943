"""Norm axis: the scale of the numbers at each position."""

from keras_attn import registry
from keras_attn.norms.dyt import DyT
from keras_attn.norms.layer_norm import LayerNorm
from keras_attn.norms.norm import NoNorm, Norm
from keras_attn.norms.rms_norm import RMSNorm

NAMES = {"dyt": DyT, "layer_norm": LayerNorm, "none": NoNorm, "rms_norm": RMSNorm}


def get(identifier, **layer_arguments):
    """Return the norm of a name, a config or an object."""
    return registry.resolve(identifier, NAMES, "norm", base=Norm, **layer_arguments)


__all__ = ["DyT", "LayerNorm", "NoNorm", "Norm", "RMSNorm", "get"]
