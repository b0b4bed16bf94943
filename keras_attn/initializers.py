"""Initializers of several matrices and of positions, and new numbers each time."""

import math

import keras
import numpy as np

from keras_attn.registry import copy, register


def redraw(initializer):
    """Return the initializer with its own random numbers: one with a seed always draws the same."""
    return copy(initializer) if hasattr(initializer, "seed") else initializer


@register
class MatrixInitializer(keras.initializers.Initializer):
    """Initialize a weight by one or several matrices, each drawn by its own initializer.

    Keras's initializers take a kernel of three axes for that of a convolution and draw it several
    times too narrow. Each call draws new numbers.

    Args:
        initializer: name or object of a Keras initializer.
        shape: (rows, columns) of each matrix.
        axes: shape of the matrices side by side, with their columns, or rows, cut into several
            axes, before `transpose`; by default the weight's shape.
        count: int. Number of matrices, side by side.
        transpose: tuple of ints or None. Permutation of `axes` that gives the weight's shape.
    """

    def __init__(self, initializer, shape, axes=None, count=1, transpose=None):
        self.initializer = keras.initializers.get(initializer)
        self.shape = tuple(shape)
        self.axes = None if axes is None else tuple(axes)
        self.count = count
        self.transpose = None if transpose is None else tuple(transpose)

    def __call__(self, shape, dtype=None):
        matrices = [redraw(self.initializer)(self.shape, dtype=dtype) for _ in range(self.count)]
        x = matrices[0] if self.count == 1 else keras.ops.concatenate(matrices, axis=-1)
        x = keras.ops.reshape(x, shape if self.axes is None else self.axes)
        return x if self.transpose is None else keras.ops.transpose(x, self.transpose)

    def get_config(self):
        config = {name: getattr(self, name) for name in ("shape", "axes", "count", "transpose")}
        return {"initializer": keras.initializers.serialize(self.initializer), **config}


@register
class SinusoidTable(keras.initializers.Initializer):
    """Initialize a table of positions (n, D) by sinusoids of mean 0 and a standard deviation.

        S_p = [sin(p), cos(p), sin(p r), cos(p r), ...],  r = 10000^(-2 / D)
        P = stddev (S - mean(S)) / std(S)

    Args:
        stddev: float. Standard deviation of the table, with Bessel's correction.
    """

    def __init__(self, stddev=0.1):
        self.stddev = stddev

    def __call__(self, shape, dtype=None):
        count, width = shape
        rates = np.exp(-math.log(10000.0) / width * np.arange(0, width, 2))
        angles = np.arange(count)[:, None] * rates
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(count, -1)[:, :width]
        deviation = np.std(waves, ddof=1) if waves.size > 1 else 1.0
        waves = self.stddev * (waves - waves.mean()) / deviation
        return keras.ops.convert_to_tensor(waves, dtype or keras.backend.floatx())

    def get_config(self):
        return {"stddev": self.stddev}


@register
class WaveTable(keras.initializers.Initializer):
    """Initialize a table of learned positions (n, D) by waves of the position, in a random basis.

        P_p = sqrt(2) s [sin(w_1 p), ..., cos(w_1 p), ...] Q,   w_i = (pi / 2) 8^(-2 (i-1) / D)

    The product of two rows is a function of their distance, so one matrix finds the position before
    at all positions; in a table of random rows each pair is learned alone. The waves are 4 to 32
    positions long: of a wide table, the cosine of a row with the next is 0.7, and with those three
    or more away at most 0.3. The orthonormal Q (D, D) is drawn anew for each table, so that the
    waves of several tables do not meet.

    Args:
        stddev: float s. The root of the mean square of the numbers, for an even D.
    """

    def __init__(self, stddev):
        self.stddev = stddev

    def __call__(self, shape, dtype=None):
        (count, width), pairs = shape, shape[1] // 2
        rates = 0.5 * math.pi * 8.0 ** (-np.arange(pairs) / max(1, pairs))
        angles = np.arange(count)[:, None] * rates
        waves = np.zeros(shape)
        waves[:, : 2 * pairs] = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        waves = keras.ops.convert_to_tensor(math.sqrt(2) * self.stddev * waves, "float32")
        basis = keras.initializers.Orthogonal()((width, width), dtype="float32")
        return keras.ops.cast(keras.ops.matmul(waves, basis), dtype or keras.backend.floatx())

    def get_config(self):
        return {"stddev": self.stddev}
