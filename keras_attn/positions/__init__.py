"""Position axis: positions added to embeddings, or applied to queries and keys."""

from keras_attn import registry
from keras_attn.positions.axial import Axial
from keras_attn.positions.axial_rotary import AxialRotary
from keras_attn.positions.image_coordinates import ImageCoordinates
from keras_attn.positions.learned import Learned
from keras_attn.positions.position import Position
from keras_attn.positions.rotary import Rotary
from keras_attn.positions.rotary_scaling import (
    NTK,
    Interpolation,
    Llama3,
    LongRoPE,
    RotaryScaling,
    YaRN,
)
from keras_attn.positions.sinusoidal import Sinusoidal
from keras_attn.positions.timestep import Timestep

NAMES = {"rotary": Rotary, "sinusoidal": Sinusoidal, "timestep": Timestep}


def get(identifier, **layer_arguments):
    """Return the position for a name, a config or an object; one that needs sizes has no name.

    Args:
        identifier: "sinusoidal", "timestep" or "rotary"; or a config, as
            `keras.saving.serialize_keras_object` makes it; or a `Position`, which is returned.
        layer_arguments: arguments of a Keras layer that is made from a name, such as `dtype`.

    Returns:
        A `Position`.

    Raises:
        ValueError: if the name is unknown, or `identifier` is no position.

    Example:
        >>> from keras_attn import positions
        >>> positions.get("rotary")
        Rotary()
    """
    return registry.resolve(identifier, NAMES, "position", base=Position, **layer_arguments)


def get_for_heads(identifier, **layer_arguments):
    """Return the position of queries and keys for a name, a config or an object."""
    position = get(identifier, **layer_arguments)
    if not position.acts_on_heads:
        raise ValueError(
            "`position` of an attention layer must act on heads, as 'rotary' does; add any other "
            f"to the layer's input, as a layer of its own. Received: position={identifier!r}."
        )
    return position


__all__ = [
    "Axial",
    "AxialRotary",
    "ImageCoordinates",
    "Interpolation",
    "Learned",
    "Llama3",
    "LongRoPE",
    "NTK",
    "Position",
    "Rotary",
    "RotaryScaling",
    "Sinusoidal",
    "Timestep",
    "YaRN",
    "get",
]
