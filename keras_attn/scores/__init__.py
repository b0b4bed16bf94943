"""Score axis: how alike are a query and a key.

A score maps per-head tensors to logits:
`(query (B, N, T, H), key (B, N, S, H), query_positions, key_positions) -> (B, N, T, S)`.
"""

from keras_attn import axis
from keras_attn.scores.additive import Additive
from keras_attn.scores.dot_product import DotProduct

NAMES = {
    "scaled_dot": DotProduct,
    "dot": lambda: DotProduct(scaled=False),
    "additive": Additive,
}


def get(identifier, **layer_arguments):
    """The score that a name, a config or an object stands for."""
    return axis.resolve(identifier, NAMES, "score", needs="__call__", **layer_arguments)


__all__ = ["Additive", "DotProduct", "get"]
