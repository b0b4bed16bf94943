"""A saved model comes back the same, in this process and in one that knows nothing."""

import os
import tempfile

import keras

from keras_attn.testing.fresh_process import predict_in_a_fresh_process
from keras_attn.testing.numbers import apart, equal
from keras_attn.testing.subject import arrays


def saving(subject):
    """`model.save` leaves the weights alone; `load_model` brings all of them back."""
    layer, model, expected = _made(subject)
    before = layer.get_weights()
    custom = {type(layer).__name__: type(layer)}
    loaded = _saved(model, lambda path: keras.models.load_model(path, custom, compile=False))
    loaded.compile(jit_compile=False)
    if not equal(layer.get_weights(), before):
        yield "Saving the model changed its weights."
    restored = loaded.get_weights()
    if len(restored) != len(before) or not equal(restored, before):
        yield "The weights of the loaded model are not those that were saved."
    far = apart(arrays(loaded.predict_on_batch(_inputs(subject))), expected)
    if far:
        yield f"The loaded model was expected to give the output of the saved one, but {far}."


def fresh_process(subject):
    """A new process that only imports the layer's module loads the model."""
    layer, model, expected = _made(subject)
    found = _saved(
        model, lambda path: predict_in_a_fresh_process(path, type(layer), _inputs(subject))
    )
    far = apart(found, expected)
    if far:
        yield f"Loaded in a fresh process, the model was expected to give the same output, but {far}."


def _made(subject):
    layer = subject.copy()
    model = subject.model(layer)
    model.compile(jit_compile=False)
    return layer, model, arrays(model.predict_on_batch(_inputs(subject)))


def _inputs(subject):
    return subject.model_inputs(subject.inputs)


def _saved(model, use):
    """The result of `use` on the path of the saved model."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.keras")
        model.save(path)
        return use(path)
