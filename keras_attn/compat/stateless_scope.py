"""The scope in which Keras writes no variables.

Private: `keras.src.backend.common.stateless_scope.in_stateless_scope`. Holds for Keras 3.15, which
keras_attn requires.
Upstream:
https://github.com/keras-team/keras/blob/master/keras/src/backend/common/stateless_scope.py
Remove when Keras exports the function beside `keras.StatelessScope`, which is public.
"""

from keras.src.backend.common.stateless_scope import in_stateless_scope

__all__ = ["in_stateless_scope"]
