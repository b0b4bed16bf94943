"""Layers without memory for their weights, of which only the configuration is read.

Private: the attribute "uninitialized_variables" of `keras.src.backend.common.global_state`, a list
of the variables that the next `keras.StatelessScope` initializes at its end. Holds for Keras 3.15,
which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/common/variables.py
Remove when Keras builds a layer without values of its variables, as PyTorch does on its device
"meta".
"""

import contextlib

import keras
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute

WAITING = "uninitialized_variables"


@contextlib.contextmanager
def without_values():
    """Make variables with shapes and without values, which nothing initializes later."""
    before = list(get_global_attribute(WAITING) or [])
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        set_global_attribute(WAITING, before)
