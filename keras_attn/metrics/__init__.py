"""Metrics of tokens, characters, pixels and forecasts that ignore padding."""

from keras_attn.metrics.accuracy import SequenceAccuracy, TokenAccuracy
from keras_attn.metrics.forecasts import (
    MASE,
    Coverage,
    WeightedQuantileLoss,
    seasonal_naive_error,
)
from keras_attn.metrics.likelihood import BitsPerCharacter, BitsPerDim, Perplexity

__all__ = [
    "BitsPerCharacter",
    "BitsPerDim",
    "Coverage",
    "MASE",
    "Perplexity",
    "SequenceAccuracy",
    "TokenAccuracy",
    "WeightedQuantileLoss",
    "seasonal_naive_error",
]
