"""Keras's implicit mask, as `mask_zero=True` or `Masking` makes it."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_attn.attention.masks import keras_mask
from keras_attn.testing.numbers import apart, equal, random
from keras_attn.testing.running import NotApplicable
from keras_attn.testing.subject import arrays, is_float


def implicit_mask(subject):
    """The mask of the inputs is honoured, passed on, and not warned about."""
    marked = [index for index, x in enumerate(subject.inputs) if is_float(x) and x.ndim == 3]
    if marked[:1] != [0]:
        raise NotApplicable("the first input is not a sequence of vectors")
    real = [_mask(x) if index in marked else None for index, x in enumerate(subject.inputs)]
    layer = subject.copy()

    def call(inputs):
        given = [
            ops.convert_to_tensor(x) if mask is None else Marked(mask)(ops.convert_to_tensor(x))
            for x, mask in zip(inputs, real, strict=True)
        ]
        return keras.tree.flatten(subject.raw_call(layer, *given))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = call(subject.inputs)
    complaints = [str(warning.message) for warning in told if "mask" in str(warning.message)]
    if complaints:
        yield f"Called with Keras masks, it warned without need: {complaints[0]}"
    passed_on = keras_mask(results[0])
    if passed_on is None:
        yield "The Keras mask of the first input was not passed on with the output."
    elif not np.array_equal(ops.convert_to_numpy(passed_on), real[0]):
        yield "The output's Keras mask was expected to be that of the first input, but is another."
    outputs = arrays(results)
    if outputs[0].shape[:2] != real[0].shape:
        return
    other = [
        x if mask is None else np.where(mask[..., None], x, random(*x.shape, seed=7, scale=5))
        for x, mask in zip(subject.inputs, real, strict=True)
    ]
    if not equal([arrays(call(other))[0][real[0]]], [outputs[0][real[0]]]):
        yield (
            "Changing the inputs where their Keras mask says padding changed the output "
            "where it says real."
        )
    yield from _in_a_model(subject, layer, real, marked)


def _in_a_model(subject, layer, real, marked):
    """The same through `keras.layers.Masking`, in a graph."""
    inputs = [keras.Input((None, *x.shape[2:]), dtype=str(x.dtype)) for x in subject.inputs]
    masking = [keras.layers.Masking()(x) if i in marked else x for i, x in enumerate(inputs)]
    model = keras.Model(inputs, layer(*masking))
    model.compile(jit_compile=False)
    numbers = [
        x if mask is None else x * mask[..., None].astype(x.dtype)
        for x, mask in zip(subject.inputs, real, strict=True)
    ]
    expected = arrays(
        subject.raw_call(
            layer,
            *(
                x if mask is None else Marked(mask)(ops.convert_to_tensor(x))
                for x, mask in zip(numbers, real, strict=True)
            ),
        )
    )
    found = arrays(model.predict_on_batch(numbers))
    far = apart([found[0][real[0]]], [expected[0][real[0]]])
    if far:
        yield f"After `keras.layers.Masking` in a model, {far}."


def _mask(x):
    """The first row ends with padding."""
    mask = np.ones(x.shape[:2], bool)
    mask[0, -(x.shape[1] // 3) :] = False
    return mask


class Marked(keras.layers.Layer):
    """Gives its input a Keras mask."""

    def __init__(self, mask):
        super().__init__()
        self.mask = mask
        self.supports_masking = True

    def call(self, x):
        return x + 0

    def compute_mask(self, x, previous_mask=None):
        return ops.convert_to_tensor(self.mask)
