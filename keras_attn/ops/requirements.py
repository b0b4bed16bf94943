"""What can only be checked as a graph runs."""

import keras


def require(condition, message):
    """Stops with `message` where `condition`, a bool scalar, is False, if the backend can."""
    if keras.backend.backend() == "tensorflow":
        from keras_attn.ops.tensorflow_requirements import require as require_on_tensorflow

        require_on_tensorflow(condition, message)
