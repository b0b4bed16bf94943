"""Costs of a model before it runs."""

from keras_attn.explain.explain_model import explain
from keras_attn.explain.explanation import Explanation, LayerCost, MemoryCost

__all__ = ["Explanation", "LayerCost", "MemoryCost", "explain"]
