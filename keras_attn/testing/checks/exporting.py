"""A SavedModel gives the same numbers."""

import tempfile

import keras

from keras_attn.testing.numbers import apart
from keras_attn.testing.running import NotApplicable
from keras_attn.testing.subject import arrays


def export(subject):
    """`model.export` writes a SavedModel that a server runs, at any size, with equal outputs."""
    if keras.backend.backend() != "tensorflow":
        raise NotApplicable("the backend is not TensorFlow")
    import tensorflow as tf

    from keras_attn.export import unservable_ops

    layer = subject.copy()
    model = subject.model(layer)
    with tempfile.TemporaryDirectory() as directory:
        model.export(directory, verbose=False)
        ops = unservable_ops(directory)
        served = tf.saved_model.load(directory)
        for inputs in (subject.inputs, subject.smaller()):
            expected = subject.call(layer, *inputs, **subject.masks(inputs))
            tensors = [tf.convert_to_tensor(x) for x in subject.model_inputs(inputs)]
            found = arrays(served.serve(tensors))
            far = apart(found, expected)
            if far:
                shapes = ", ".join(str(x.shape) for x in inputs)
                yield f"The SavedModel gave on inputs {shapes} another output: {far}."
    if ops:
        yield f"The SavedModel has operations that TensorFlow Serving does not run: {ops}."
