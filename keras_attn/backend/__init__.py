"""Operations whose implementation differs by Keras backend.

A file per theme documents its functions and implements them for any backend. A function of the
same name in `keras_attn/backend/BACKEND.py` takes its place on that backend.
"""

import importlib

import keras


def per_backend(function):
    """Replace a function of `keras_attn.backend` by the current backend's own, if there is one.

    A decorator. The choice is made at import, since Keras fixes its backend at import too. The
    replaced function is the attribute `portable` of the result.
    """
    name = f"{__name__}.{keras.backend.backend()}"
    try:
        implementations = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        implementations = None
    own = getattr(implementations, function.__name__, function)
    own.portable = function
    if own.__doc__ is None:
        own.__doc__ = function.__doc__
    return own
