"""Sizes of a head under three scores, at the same learning rate."""

from keras_attn import scores

from ..model import Changes

SIZES = 4, 16, 64, 256


def values(options):
    """Return the values: one head of each size, so that the hidden size does not limit it."""
    sizes = {
        "scaled_dot": scores.DotProduct(),
        "dot": scores.DotProduct(scaled=False),
        "additive": scores.Additive(units=16),
    }
    return {
        f"{name}_{size}": Changes({"score": score}, heads=(1, size))
        for name, score in sizes.items()
        for size in SIZES
    }
