"""Missing and padded values of series, which change no other output, forward and backward."""

import keras
import numpy as np
from keras import ops

from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.testing.numerics import compute_gradients, equal, random
from keras_attn.testing.precision import weighted_sum
from keras_attn.testing.subject import NotApplicable


def missing_values(subject):
    """NaN gives finite outputs and gradients, and changes no other row."""
    layer, (values,) = subject.copy(), subject.inputs
    gaps = values.copy()
    gaps[0, 1 : 1 + gaps.shape[1] // 2] = gaps[1] = np.nan  # a gap, and a row without a value
    whole, outputs = subject.call(layer, values), subject.call(layer, gaps)
    for training in (False, True):
        condition = " in training" if training else ""
        with_gaps = outputs if not training else subject.call(layer, gaps, training=True)
        if not all(np.isfinite(x).all() for x in with_gaps):
            yield f"With missing values an output{condition} is not finite."
            return
        yield from _gradient_defects(subject, layer, gaps, np.isnan(gaps), "missing", training)
    if not equal(*(_rows(x, values, 2) for x in (outputs, whole))):
        yield "Missing values of two rows changed the outputs of the others."


def padded_values(subject):
    """The values where Keras's mask is False change no output, whatever they are."""
    if isinstance(subject.layer, keras.Model):
        raise NotApplicable("a model of series is called without a mask")
    layer, (values,) = subject.copy(), subject.inputs
    mask = np.ones(values.shape[:2], bool)
    mask[0, : values.shape[1] // 2] = mask[1] = False
    hidden = np.broadcast_to(mask.reshape(mask.shape + (1,) * (values.ndim - 2)), values.shape)
    expected = _call(subject, layer, values, mask)
    for name, noise in (("others", random(*values.shape, seed=8, scale=20)), ("NaN", np.nan)):
        changed = np.where(hidden, values, noise).astype("float32")
        if not equal(_call(subject, layer, changed, mask), expected):
            yield f"Changing padded values to {name} changed the output."
    if not all(np.isfinite(x).all() for x in expected):
        yield "With padded values an output is not finite."
        return
    yield from _gradient_defects(subject, layer, values, ~hidden, "padded", False, mask)


def _call(subject, layer, values, mask):
    return subject.call(layer, _masked(ops.convert_to_tensor(values), mask))


def _masked(values, mask):
    if mask is not None:
        values = ops.copy(values)
        set_keras_mask(values, ops.convert_to_tensor(mask))
    return values


def _rows(outputs, values, start):
    """Return the parts of outputs of the rows from `start` on; each row has as many of them."""
    return [x[len(x) // len(values) * start :] for x in outputs]


def _gradient_defects(subject, layer, values, absent, kind, training, mask=None):
    """Yield what is wrong about the gradients by the values and by the weights."""

    def scalar(x):
        return weighted_sum(subject.raw_call(layer, _masked(x, mask), training=training))

    gradient, *others = compute_gradients(scalar, (values,), layer.trainable_weights)
    gradients = [x for x in (gradient, *others) if x is not None]
    if not all(np.isfinite(x).all() for x in gradients):
        yield f"With {kind} values a gradient is not finite."
    elif gradient is not None and np.any(gradient[absent]):
        largest = np.abs(gradient[absent]).max()
        yield f"The gradient by {kind} values must be 0, but it reaches {largest:.3g}."
