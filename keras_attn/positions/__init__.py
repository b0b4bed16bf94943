"""Position axis: where am I. A position maps `(x (B, T, D), positions) -> x`.

One that works on heads, too, may stand in the attention: it is handed queries and keys (B, N, T, H).
"""

from keras_attn import registry
from keras_attn.positions.axial import Axial
from keras_attn.positions.image_coordinates import ImageCoordinates
from keras_attn.positions.learned import Learned
from keras_attn.positions.rotary import Rotary
from keras_attn.positions.sinusoidal import Sinusoidal
from keras_attn.positions.timestep import Timestep

NAMES = {"rotary": Rotary, "sinusoidal": Sinusoidal, "timestep": Timestep}
OF_HEADS = {"rotary": Rotary}


def get(identifier, **layer_arguments):
    """The position that a name, a config or an object stands for.

    Those that need a length or a shape have no name of their own.
    """
    return registry.resolve(identifier, NAMES, "position", needs="__call__", **layer_arguments)


def get_of_heads(identifier, **layer_arguments):
    """The same for a position that works on heads."""
    return registry.resolve(identifier, OF_HEADS, "position", needs="of_heads", **layer_arguments)


__all__ = ["Axial", "ImageCoordinates", "Learned", "Rotary", "Sinusoidal", "Timestep", "get"]
