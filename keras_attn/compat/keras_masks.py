"""Keras's implicit mask.

Private: `keras.src.backend.common.masking.get_keras_mask` and `set_keras_mask`. Holds for Keras
3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/common/masking.py
Remove when Keras exports the functions. Reading the attribute `_keras_mask` is not enough: a tensor
that JAX traces has no such attribute, and Keras stores its mask elsewhere.
"""

from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

__all__ = ["get_keras_mask", "set_keras_mask"]
