"""Costs of a model before it runs."""

from keras_attn.explain.explain_model import explain
from keras_attn.explain.explanation import Explanation, LayerCost, MemoryCost
from keras_attn.explain.reach import Reach

__all__ = ["Explanation", "LayerCost", "MemoryCost", "Reach", "explain"]
