"""Another path of a variable.

Private: `Variable._path`. Seeds are made before their layer is named, and weights that a built
layer gets outside its scope. Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/common/variables.py
Remove when the path of a variable begins with that of its layer in both cases.
"""


def set_path(variable, path):
    """Give a variable the path that it would have if it were made inside its layer."""
    variable._path = path
