"""The layers inside which a variable is made.

Private: `keras.src.backend.common.global_state` and the `name_scope_stack` in it. Holds for Keras
3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/common/name_scope.py
Remove when `keras.distribution.Distribution.get_variable_layout` gets the layer of the variable: it
knows its path only, in which a user may have named any layer as any other.
"""

from keras.src.backend.common import global_state


def open_scopes():
    """Return the name and the object, or None, of each open scope of names, the outermost first."""
    stack = global_state.get_global_attribute("name_scope_stack") or ()
    return [(scope.name, scope.caller) for scope in stack]
