"""Residual axis: the sum around a sublayer, `after(x, sublayer(before(x)))`."""

from keras_attn import registry
from keras_attn.residuals.gate import Gate
from keras_attn.residuals.residual import PostNorm, PreNorm, Residual

NAMES = {"gate": Gate, "post_norm": PostNorm, "pre_norm": PreNorm}


def get(identifier, **layer_arguments):
    """Return the residual of a name, a config or an object."""
    return registry.resolve(identifier, NAMES, "residual", base=Residual, **layer_arguments)


__all__ = ["Gate", "PostNorm", "PreNorm", "Residual", "get"]
