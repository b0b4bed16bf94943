"""Weights that a layer gains or loses after it was built.

Private: `keras.layers.Layer._tracker` and `Layer._untrack_variable`. Holds for Keras 3.15, which
keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/layer.py
Remove when Keras has a public way to add a weight to a built layer: its own `Dense.enable_lora`
unlocks the tracker too. `del layer.name` removes a weight, but runs Python's garbage collector,
which takes a tenth of a second and more for each weight.
"""

import contextlib


@contextlib.contextmanager
def unlocked(layer):
    """Let a built layer gain weights inside the context."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def remove_weight(layer, name):
    """Remove the weight that is the attribute `name` of a layer, which becomes None."""
    layer._untrack_variable(getattr(layer, name))
    setattr(layer, name, None)
