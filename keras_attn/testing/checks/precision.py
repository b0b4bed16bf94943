"""Numbers under a low precision, near and far."""

import numpy as np

from keras_attn.testing.numbers import apart
from keras_attn.testing.subject import has_length

# The spacing of numbers at 1.
SPACING = {"mixed_bfloat16": 2**-7, "mixed_float16": 2**-10}
# Roundings of inputs, weights, sums and output add up to a few spacings.
ROUNDINGS = 4
LENGTHS = (4096, 1001, 11)


def precision(subject):
    """Mixed precision is finite and close to float32, far along a sequence too."""
    layer = subject.copy()
    for length in LENGTHS:
        inputs = [_resized(x, length) for x in subject.inputs]
        try:
            expected = subject.call(layer, *inputs)
        except Exception:  # Anyone's layer, which may refuse a length, too long a one, in any way.
            if length == LENGTHS[-1]:
                raise
            continue
        break
    for policy, spacing in SPACING.items():
        found = subject.call(subject.copy(policy), *inputs)
        yield from compare(policy, found, expected, spacing, f"on {inputs[0].shape[1:2]} positions")


def compare(policy, found, expected, spacing, where):
    """A sentence if results under `policy` are not finite, or far from those under float32."""
    if not all(np.isfinite(x).all() for x in found):
        yield f"Under {policy} {where}, the output is not finite."
        return
    far = apart(found, expected, ROUNDINGS * spacing)
    if far:
        yield f"Under {policy} {where}, the output was expected close to that under float32: {far}."


def _resized(x, length):
    """One row of `x`, repeated along the sequence."""
    if not has_length(x):
        return x[:1]
    return np.take(x[:1], np.arange(length) % x.shape[1], axis=1)
