"""Clones of functional models that keep ties between layers, and the class of the model.

Private: `_clone_functional_model` of `keras.src.models.cloning`, which this file replaces, the
scope of shared objects in `keras.src.saving.serialization_lib`, and the layer of an input,
`KerasTensor._keras_history`. `keras.models.clone_model` clones each layer by itself, so a layer
that holds another brings a copy of it; it makes a plain functional model of any subclass with a
constructor of its own, and needs all inputs that were optional. Holds for Keras 3.15, which
keras_attn requires. Models without a layer of this package are cloned by Keras alone.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/models/cloning.py
Remove when Keras keeps ties in clones and calls a method of the model to clone it.
"""

import contextlib
import functools
import gc

import keras
from keras.src.models import cloning
from keras.src.saving import serialization_lib

_clone_by_keras = cloning._clone_functional_model


def keep_ties(applies_to, clone_with):
    """Let `keras.models.clone_model` keep ties in models of this package's layers.

    Args:
        applies_to: function of a model. True for models that are cloned so, others by Keras alone.
        clone_with: function of a model and of a function that clones one of its layers. It returns
            the clone; None leaves it to Keras.
    """

    @functools.wraps(_clone_by_keras)
    def clone(model, clone_function, input_tensors=None, call_function=None):
        if not applies_to(model):
            return _clone_by_keras(model, clone_function, input_tensors, call_function)
        with _sharing():
            for layer in model.layers:
                # Notes the layer and those inside it: a second configuration refers to the first.
                serialization_lib.serialize_keras_object(layer)

            def clone_once(layer):
                twin = serialization_lib.get_shared_object(id(layer))
                if twin is None:
                    twin = clone_function(layer)
                    serialization_lib.record_object_after_deserialization(twin, id(layer))
                return twin

            if input_tensors is None and call_function is None:
                copied = clone_with(model, clone_once)
                if copied is not None:
                    if model.compiled:
                        copied.compile_from_config(model.get_compile_config())
                    return copied
            if input_tensors is None:
                input_tensors = keras.tree.map_structure(_input_like, model.input)
            return _clone_by_keras(model, clone_once, input_tensors, call_function)

    cloning._clone_functional_model = clone


def _input_like(x):
    """Return an input as `x`, which may be optional: Keras's clones need all."""
    layer = x._keras_history.operation
    return keras.Input(batch_shape=x.shape, dtype=x.dtype, name=x.name, optional=layer.optional)


@contextlib.contextmanager
def _sharing():
    """Open Keras's scope of shared objects without garbage collection.

    Keras identifies objects by `id`, which an object that is freed gives back.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        with serialization_lib.ObjectSharingScope():
            yield
    finally:
        if is_enabled:
            gc.enable()
