"""Layers without values of their weights: to read the configuration, or to give values later.

Private: the attribute "uninitialized_variables" of `keras.src.backend.common.global_state`, a list
of the variables that the next `keras.StatelessScope` initializes at its end, and of a variable
`_initializer` and `_deferred_initialize`. Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/common/variables.py
Remove when Keras builds a layer without values of its variables, as PyTorch does on its device
"meta".
"""

import contextlib

import keras
import numpy as np
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute

from keras_attn.compat.variable_values import stored_value

WAITING = "uninitialized_variables"


@contextlib.contextmanager
def without_values():
    """Make variables with shapes and without values, which Keras does not initialize later.

    Yields:
        A list, which at the end of the context holds the variables that were made.
    """
    before, made = list(get_global_attribute(WAITING) or []), []
    set_global_attribute(WAITING, made)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield made
    finally:
        set_global_attribute(WAITING, before)


def assign(variable, value):
    """Assign a NumPy array to a variable, also to one without a value."""
    if stored_value(variable) is not None:
        return variable.assign(value)
    variable._initializer = lambda shape, dtype: keras.ops.cast(_tensor(value), dtype)
    variable._deferred_initialize()


def _tensor(value):
    """Return a tensor of an array, whose axes the backend transposes: thrice as fast as NumPy."""
    order = np.argsort([-stride for stride in value.strides], kind="stable").tolist()
    stored = keras.ops.convert_to_tensor(np.transpose(value, order))
    is_stored = order == sorted(order)
    return stored if is_stored else keras.ops.transpose(stored, np.argsort(order).tolist())


def initialize(variables):
    """Give variables that still have no value their initial ones."""
    for variable in variables:
        if stored_value(variable) is None:
            variable._deferred_initialize()
