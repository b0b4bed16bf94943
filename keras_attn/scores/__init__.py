"""Score axis: how alike are a query and a key.

A score maps per-head tensors to logits:
`(query (B, N, T, H), key (B, N, S, H), query_positions, key_positions) -> (B, N, T, S)`.
"""

from keras_attn import registry
from keras_attn.scores.additive import Additive
from keras_attn.scores.dot_product import DotProduct
from keras_attn.scores.learned_relative import LearnedRelative
from keras_attn.scores.relative import Relative
from keras_attn.scores.shared_qk import SharedQK

NAMES = {
    "scaled_dot": DotProduct,
    "dot": lambda: DotProduct(scaled=False),
    "additive": Additive,
    "relative": Relative,
    "shared_qk": SharedQK,
}


def get(identifier, **layer_arguments):
    """The score that a name, a config or an object stands for."""
    return registry.resolve(identifier, NAMES, "score", needs="__call__", **layer_arguments)


__all__ = ["Additive", "DotProduct", "LearnedRelative", "Relative", "SharedQK", "get"]
