"""Keras's implicit mask, as `mask_zero=True` or `Masking` makes it."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_attn.attention.inputs import keras_mask
from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.testing.numerics import compare, equal, is_float, random, to_arrays
from keras_attn.testing.report import NotApplicable


def implicit_mask(subject):
    """The mask of the inputs is used and passed on, and causes no warning."""
    masked = [index for index, x in enumerate(subject.inputs) if is_float(x) and x.ndim == 3]
    if masked[:1] != [0]:
        raise NotApplicable("the first input is not a sequence of vectors")
    masks = [_padding_mask(x) if i in masked else None for i, x in enumerate(subject.inputs)]
    layer = subject.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = _call_with_masks(subject, layer, subject.inputs, masks)
    messages = [str(warning.message) for warning in caught if "mask" in str(warning.message)]
    if messages:
        yield f"A call with Keras masks caused an unnecessary warning: {messages[0]}"
    passed_on = keras_mask(results[0])
    if passed_on is None:
        yield "The Keras mask of the first input was not passed on with the output."
    elif not np.array_equal(ops.convert_to_numpy(passed_on), masks[0]):
        yield "The output's Keras mask was expected to be that of the first input, but differs."
    outputs = to_arrays(results)
    if outputs[0].shape[:2] != masks[0].shape:
        return

    def with_noise(x, mask):
        return np.where(mask[..., None], x, random(*x.shape, seed=7, scale=5))

    changed = _map_masked(with_noise, subject.inputs, masks)
    after = to_arrays(_call_with_masks(subject, layer, changed, masks))
    if not equal([after[0][masks[0]]], [outputs[0][masks[0]]]):
        yield "Changing the inputs at masked positions changed the output at unmasked positions."
    yield from _compare_with_masking(subject, layer, masks)


def attention_implicit_mask(subject):
    """Keras's mask is used, passed on, and equivalent to the same mask given by name."""
    yield from implicit_mask(subject)
    layer, query, x = subject.copy(), subject.query, subject.value
    mask = subject.key_mask(x)
    expected = [subject.attend(layer, query, x, key_mask=mask)]
    found = to_arrays(_call_with_masks(subject, layer, (query, x), (None, mask)))
    sentence = "The Keras mask of `value` was expected to act as the same mask given by name"
    yield from compare(sentence, found, expected)


def _compare_with_masking(subject, layer, masks):
    """Compare a graph with `keras.layers.Masking` to an eager call with the same masks."""
    inputs = [keras.Input((None, *x.shape[2:]), dtype=str(x.dtype)) for x in subject.inputs]
    masked = _map_masked(lambda x, mask: keras.layers.Masking()(x), inputs, masks)
    model = keras.Model(inputs, layer(*masked))
    model.compile(jit_compile=False)
    arrays = _map_masked(lambda x, mask: np.where(mask[..., None], x, 0), subject.inputs, masks)
    expected = to_arrays(_call_with_masks(subject, layer, arrays, masks))
    found = to_arrays(model.predict_on_batch(arrays))
    sentence = "After `Masking` in a model, the output was expected to be that of an eager call"
    yield from compare(sentence, [found[0][masks[0]]], [expected[0][masks[0]]])


def _padding_mask(x):
    """Mask whose first row ends with padding."""
    mask = np.ones(x.shape[:2], bool)
    mask[0, -(x.shape[1] // 3) :] = False
    return mask


def _call_with_masks(subject, layer, inputs, masks):
    """Call the layer on inputs with Keras masks; the results are a flat list of tensors."""
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    tensors = _map_masked(_attach_mask, tensors, masks)
    return keras.tree.flatten(subject.raw_call(layer, *tensors))


def _map_masked(function, inputs, masks):
    """Apply `function(x, mask)` to each input that has a mask."""
    pairs = zip(inputs, masks, strict=True)
    return [x if mask is None else function(x, mask) for x, mask in pairs]


def _attach_mask(x, mask):
    set_keras_mask(x, ops.convert_to_tensor(mask))
    return x
