"""Feed-forward axis: the layer of a block that is neither attention nor a residual."""

from keras_attn.feed_forward.feed_forward import FeedForward
from keras_attn.feed_forward.separable_conv_transition import PositionMixer, SeparableConvTransition

__all__ = ["FeedForward", "PositionMixer", "SeparableConvTransition"]
