"""Adam with a fused update, and the learning rate schedule of the Transformer paper."""

from keras_attn.optimizers.adam import Adam, Noam

__all__ = ["Adam", "Noam"]
