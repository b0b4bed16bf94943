"""Positions of the model, of heads, and of scores."""

from keras_attn import positions, scores

from ...common.model_arguments import grid
from ..model import PLAIN, Changes


def values(options):
    """Return the values."""
    context, half = options.context, options.hidden_dim // 2
    rows, columns = grid(context)

    def in_model(position):
        return Changes({"position": None}, position=position)

    def in_heads(**attention):
        return Changes({"position": None, **attention})

    return {
        "rotary": PLAIN,
        "none": in_model(None),
        "sinusoidal": in_model("sinusoidal"),
        "learned": in_model(positions.Learned(context)),
        "axial": in_model(positions.Axial((columns, rows), (half, options.hidden_dim - half))),
        "axial_rotary": in_heads(position=positions.AxialRotary((columns, rows))),
        "relative": in_heads(score="relative"),
        "learned_relative": in_heads(score=scores.LearnedRelative(context)),
        "alibi": in_heads(score=scores.DotProduct() + scores.ALiBi()),
        "t5_bias": in_heads(score=scores.DotProduct() + scores.T5Bias()),
    }
