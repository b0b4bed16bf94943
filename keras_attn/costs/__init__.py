"""Costs of a model before it runs."""

from keras_attn.costs.explain_model import explain
from keras_attn.costs.explanation import Explanation, LayerCost, MemoryCost
from keras_attn.costs.reach import Reach

__all__ = ["Explanation", "LayerCost", "MemoryCost", "Reach", "explain"]
