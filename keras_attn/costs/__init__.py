"""Costs of a model before it runs."""

from keras_attn.costs.explain_model import explain
from keras_attn.costs.explanation import DeviceCost, Explanation, LayerCost, MemoryCost, Reach

__all__ = ["DeviceCost", "Explanation", "LayerCost", "MemoryCost", "Reach", "explain"]
