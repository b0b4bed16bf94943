"""Feed-forward axis: the computation at each position after attention."""

from keras_attn.feed_forward.feed_forward import FeedForward
from keras_attn.feed_forward.gated_feed_forward import GatedFeedForward
from keras_attn.feed_forward.mixture_of_experts import MixtureOfExperts
from keras_attn.feed_forward.separable_conv_transition import PositionMixer, SeparableConvTransition

__all__ = [
    "FeedForward",
    "GatedFeedForward",
    "MixtureOfExperts",
    "PositionMixer",
    "SeparableConvTransition",
]
