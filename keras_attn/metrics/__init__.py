"""Metrics of tokens, characters and pixels that ignore padding."""

from keras_attn.metrics.bits_per_character import BitsPerCharacter
from keras_attn.metrics.bits_per_dim import BitsPerDim
from keras_attn.metrics.perplexity import Perplexity
from keras_attn.metrics.sequence_accuracy import SequenceAccuracy
from keras_attn.metrics.token_accuracy import TokenAccuracy

__all__ = [
    "BitsPerCharacter",
    "BitsPerDim",
    "Perplexity",
    "SequenceAccuracy",
    "TokenAccuracy",
]
