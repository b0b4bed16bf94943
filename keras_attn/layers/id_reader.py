"""Arrays of ids on JAX, which has no integers of 64 bits."""

import keras

from keras_attn.ops.ids import narrow


class IdReader:
    """Mixin of a layer that reads ids, before its other bases.

    Keras makes tensors of the arrays of a call before the layer sees them, and JAX wraps integers
    of 64 bits to 32.
    """

    if keras.backend.backend() == "jax":

        def __call__(self, *args, **kwargs):
            args, kwargs = keras.tree.map_structure(narrow, (args, kwargs))
            return super().__call__(*args, **kwargs)
