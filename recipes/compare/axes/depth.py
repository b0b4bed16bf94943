"""Depths: layers of their own, one for all steps, and those that save memory."""

from keras_attn import depth

from ..model import PLAIN, Changes


def values(options):
    """Return the values."""

    def shared(kind):
        return Changes(depth=lambda block, steps: kind(block(0), steps, position="timestep"))

    return {
        "stack": PLAIN,
        "stochastic": Changes(depth=lambda block, steps: depth.Stack(block, steps, drop=0.1)),
        "recurrent": shared(depth.Recurrent),
        "act": shared(depth.ACT),
        "reversible": Changes(depth=depth.Reversible),
    }
