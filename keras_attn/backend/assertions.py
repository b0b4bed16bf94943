"""What can only be checked as a graph runs."""

import keras


def require(condition, message, x):
    """The tensor x; stops with `message` where `condition`, a bool scalar, is False.

    Whatever is computed from x comes after the check. Backends that cannot stop just give x.
    """
    if keras.backend.backend() == "tensorflow":
        from keras_attn.backend.tensorflow.assertions import require

        return require(condition, message, x)
    return x
