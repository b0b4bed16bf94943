"""Initializers of several matrices, and initializers that draw new numbers each time."""

import keras

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
