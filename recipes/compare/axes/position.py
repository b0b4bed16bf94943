"""Positions of the model, of heads, and of scores."""

from keras_attn import positions, scores

from ...common.model_arguments import grid
from ..model import PLAIN, Changes


def values(options):
    """Return the values."""
    context, half = options.context, options.hidden_dim // 2
    rows, columns = grid(context)

    def of_model(position):
        return Changes({"position": None}, position=position)

    def of_heads(**attention):
        return Changes({"position": None, **attention})

    return {
        "rotary": PLAIN,
        "none": of_model(None),
        "sinusoidal": of_model("sinusoidal"),
        "learned": of_model(positions.Learned(context)),
        "axial": of_model(positions.Axial((columns, rows), (half, options.hidden_dim - half))),
        "axial_rotary": of_heads(position=positions.AxialRotary((columns, rows))),
        "relative": of_heads(score="relative"),
        "learned_relative": of_heads(score=scores.LearnedRelative(context)),
        "alibi": of_heads(score=scores.DotProduct() + scores.ALiBi()),
        "t5_bias": of_heads(score=scores.DotProduct() + scores.T5Bias()),
    }
