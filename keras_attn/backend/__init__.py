"""Operations whose implementation differs by Keras backend.

`keras_attn/backend/NAME.py` documents a function and implements it for any backend. A function of
the same name in `keras_attn/backend/BACKEND/NAME.py` takes its place on that backend.
"""

import importlib

import keras


def per_backend(function):
    """Replace a function of `keras_attn.backend` by the current backend's own, if there is one.

    A decorator. The choice is made at import, since Keras fixes its backend at import too. The
    replaced function is the attribute `portable` of the result.
    """
    package, _, module = function.__module__.rpartition(".")
    name = f"{package}.{keras.backend.backend()}"
    try:
        own = importlib.import_module(f"{name}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in (name, f"{name}.{module}"):
            raise
        own = None
    found = getattr(own, function.__name__, function)
    found.portable = function
    if found.__doc__ is None:
        found.__doc__ = function.__doc__
    return found
