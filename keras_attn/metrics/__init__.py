"""Metrics of tokens, characters and pixels that ignore padding."""

from keras_attn.metrics.accuracy import SequenceAccuracy, TokenAccuracy
from keras_attn.metrics.likelihood import BitsPerCharacter, BitsPerDim, Perplexity

__all__ = ["BitsPerCharacter", "BitsPerDim", "Perplexity", "SequenceAccuracy", "TokenAccuracy"]
