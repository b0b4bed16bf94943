"""Positions of the model, of heads, and of scores."""

from keras_attn import positions, scores

from ..model import PLAIN, Changes
from .grid import grid


def values(options):
    """Return the values."""
    half = options.hidden_dim // 2
    rows, columns = grid(options.context)

    def of_heads(**attention):
        return Changes(attention, position=None)

    return {
        "learned": PLAIN,
        "none": Changes(position=None),
        "sinusoidal": Changes(position="sinusoidal"),
        "axial": Changes(
            position=positions.Axial((columns, rows), (half, options.hidden_dim - half))
        ),
        "rotary": of_heads(position="rotary"),
        "axial_rotary": of_heads(position=positions.AxialRotary((columns, rows))),
        "relative": of_heads(score="relative"),
        "alibi": of_heads(score=scores.DotProduct() + scores.ALiBi()),
    }
