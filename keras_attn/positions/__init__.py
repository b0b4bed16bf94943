"""Position axis: where am I. A position maps `(x (B, T, D), positions) -> x`."""

from keras_attn import axis
from keras_attn.positions.learned import Learned
from keras_attn.positions.sinusoidal import Sinusoidal

NAMES = {"sinusoidal": Sinusoidal}


def get(identifier, **layer_arguments):
    """The position that a name, a config or an object stands for.

    `Learned` has no name of its own, since it needs a length.
    """
    return axis.resolve(identifier, NAMES, "position", needs="__call__", **layer_arguments)


__all__ = ["Learned", "Sinusoidal", "get"]
