"""Residual axis: how a sublayer is wrapped, `after(x, sublayer(before(x)))`."""

from keras_attn import registry
from keras_attn.residuals.gate import Gate
from keras_attn.residuals.post_norm import PostNorm
from keras_attn.residuals.pre_norm import PreNorm

NAMES = {"gate": Gate, "post_norm": PostNorm, "pre_norm": PreNorm}


def get(identifier, **layer_arguments):
    """The residual that a name, a config or an object stands for."""
    return registry.resolve(identifier, NAMES, "residual", needs="after", **layer_arguments)


__all__ = ["Gate", "PostNorm", "PreNorm", "get"]
