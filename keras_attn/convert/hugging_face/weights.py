"""Copies of a checkpoint's tensors into the parts of a model.

A table has the path of a part in the model, and the name of its tensors: `name.weight` and
`name.bias`. PyTorch's linear layers store a kernel (out, in), Keras's (in, out).
"""

import keras
import numpy as np

from keras_attn.layers.head_projections import HeadProjections


def copy_table(checkpoint, part, table, prefix=""):
    """Copy the tensors of a table, in which `prefix` is before each name."""
    for path, name in table.items():
        copy_part(checkpoint, part, path, prefix + name)


def copy_blocks(checkpoint, blocks, table, prefix):
    """Copy the tensors of the blocks of a stack: `prefix` has a field for the index."""
    for index, block in enumerate(blocks):
        copy_table(checkpoint, block, table, prefix.format(index))


def copy_part(checkpoint, part, path, name):
    """Copy the tensors `name` into what is at `path` in `part`, "" for itself, by its kind."""
    *steps, last = path.split(".")
    for step in steps:
        part = getattr(part, step)
    if isinstance(part, HeadProjections) and last in ("query", "key", "value", "output"):
        return copy_projection(checkpoint, part, last, name)
    part = getattr(part, last) if last else part
    if isinstance(part, keras.Variable):
        return copy(checkpoint, part, name)
    is_linear = isinstance(part, keras.layers.Dense)
    if is_linear:
        weight, bias = part.kernel, part.bias
    else:  # a table, or a norm
        weight = next(getattr(part, n) for n in ("table", "gamma", "scale") if hasattr(part, n))
        bias = getattr(part, "beta", None)
    copy(checkpoint, weight, f"{name}.weight", transpose=is_linear)
    if bias is not None:
        copy(checkpoint, bias, f"{name}.bias")


def copy(checkpoint, variable, name, transpose=False):
    """Copy one tensor of the variable's shape, or of the transposed one."""
    shape = tuple(variable.shape)
    value = checkpoint.take(name, shape[::-1] if transpose else shape)
    variable.assign(value.T if transpose else value)


def copy_projection(checkpoint, attention, projection, name, has_bias=True, scale=None):
    """Copy a linear layer of all heads, times `scale`, into a projection of an attention.

    Where a family has biases in three of the four only, the others are 0: `has_bias=False`.
    """
    kernel = getattr(attention, f"{projection}_kernel")
    bias = getattr(attention, f"{projection}_bias")
    inputs, outputs = matrix_shape(kernel, projection)
    value = checkpoint.take(f"{name}.weight", (outputs, inputs)).T
    assign(kernel, value, scale)
    if bias is None:
        return
    value = checkpoint.take(f"{name}.bias", (outputs,)) if has_bias else np.zeros(outputs)
    assign(bias, value, scale)


def matrix_shape(kernel, projection):
    """Return the number of inputs and of outputs of a projection's kernel."""
    split = 2 if projection == "output" else 1  # (N, H, D) and (D, N, H)
    shape = tuple(kernel.shape)
    return int(np.prod(shape[:split])), int(np.prod(shape[split:]))


def assign(variable, value, scale=None):
    """Assign a matrix to a variable whose shape splits its axes."""
    value = value if scale is None else value * np.float32(scale)
    variable.assign(np.reshape(value, variable.shape))
