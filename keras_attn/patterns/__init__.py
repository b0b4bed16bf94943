"""Pattern axis: which keys may a query meet."""

from keras_attn import axis
from keras_attn.patterns.causal import Causal
from keras_attn.patterns.dense import Dense
from keras_attn.patterns.pattern import Pattern

NAMES = {"dense": Dense, "causal": Causal}


def get(identifier):
    """The pattern that a name, a config or an object stands for."""
    return axis.resolve(identifier, NAMES, "pattern", needs="allowed")


__all__ = ["Causal", "Dense", "Pattern", "get"]
