"""Tables of sines and cosines, in at least float32 under any dtype policy."""

import math

from keras import ops

LAYOUTS = ("interleaved", "concat", "tensor2tensor")


def sinusoids(positions, hidden_dim, layout="interleaved", max_wavelength=10000, dtype="float32"):
    """Compute sines and cosines (..., hidden_dim) of integer `positions` (...).

    Angle of pair i: position / max_wavelength ** (2 i / D). `interleaved` is the paper's order
    (sin, cos, sin, cos, ...); `concat` puts all sines first; `tensor2tensor` does too, with the
    exponent i / (D/2 - 1), so it is not a permutation of the paper's table. The table is
    float64 if `dtype` is, else float32.
    """
    half = (hidden_dim + 1) // 2
    last = max(hidden_dim // 2 - 1, 1) if layout == "tensor2tensor" else hidden_dim / 2
    rates = [math.exp(-math.log(max_wavelength) * i / last) for i in range(half)]
    sines, cosines = waves(positions, rates, dtype)
    if layout == "interleaved":
        table = ops.stack([sines, cosines], axis=-1)
        table = ops.reshape(table, (*ops.shape(positions), 2 * half))
        return table[..., :hidden_dim]
    table = ops.concatenate([sines[..., : hidden_dim // 2], cosines[..., : hidden_dim // 2]], -1)
    if hidden_dim % 2:
        table = ops.pad(table, [[0, 0]] * len(positions.shape) + [[0, 1]])
    return table


def waves(positions, frequencies, dtype="float32"):
    """Return the sines and the cosines (..., F) of integer positions (...) times F frequencies.

    They are float64 if `dtype` is, else float32.
    """
    dtype = "float64" if dtype == "float64" else "float32"
    angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.convert_to_tensor(
        frequencies, dtype
    )
    return ops.sin(angles), ops.cos(angles)
