"""The tensor or backend variable that a `keras.Variable` holds.

Private: `keras.Variable._value`. Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/common/variables.py
Remove when Keras has a public way to read a value without the cast of a mixed-precision policy and
without the stateless scope, and to exchange the backend's variable. `Variable.value` does the cast,
and `Variable.assign` copies.
"""


def stored_value(variable):
    """Return the value in the variable's own dtype; None if it is not initialised."""
    return variable._value


def replace_value(variable, value):
    """Let `variable` read `value`, any object that the backend converts to a tensor."""
    variable._value = value
