"""Copies of tensors between a checkpoint and the parts of a model, in either direction.

A table maps the path of a part in the model to the name of its tensors, `name.weight` and
`name.bias`. PyTorch's linear layers store a kernel (out, in), Keras's (in, out). One table serves
both directions: `transfer` of a `Checkpoint` assigns the variables, that of a `StoredModel` reads
them.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from keras_attn.compat.unallocated import assign
from keras_attn.layers.multi_head_attention import HeadProjections


@dataclasses.dataclass(frozen=True)
class Fold:
    """One tensor of a checkpoint, made of the values of one or several variables.

        split(transpose(reshape(tensor, view), axes), axis)[i] = variables[i] / scales[i]

    Args:
        variables: list of variables. Each is a part of `axis`, in a shape of its own.
        shape: of the tensor.
        axes: order of the axes before the split; None for that of the file.
        scales: factors of the variables; None for 1.
        offset: float. A factor multiplies value + offset, such as the gain 1 + g of a Gemma.
        view: shape of the tensor before its axes are ordered; None for that of the file.
        axis: int. The axis that is split.
    """

    variables: list
    shape: tuple
    axes: tuple | None = None
    scales: tuple | None = None
    offset: float = 0.0
    view: tuple | None = None
    axis: int = -1

    def assign(self, tensor):
        """Assign the values of a tensor to the variables."""
        tensor = np.transpose(np.reshape(tensor, self._view), self._order)
        ends = np.cumsum([shape[self.axis] for shape in self._part_shapes()])[:-1]
        for variable, part, scale in self._with_scales(np.split(tensor, ends, axis=self.axis)):
            if scale != 1 and self.offset:
                part = (part + self.offset) * np.float32(scale) - self.offset
            elif scale != 1:
                part = part * np.float32(scale)
            assign(variable, np.reshape(part, variable.shape))

    def tensor(self):
        """Return the tensor of the variables' values, float32."""
        parts = []
        for variable, shape, scale in self._with_scales(self._part_shapes()):
            part = np.reshape(numbers(variable), shape)
            if scale != 1:
                part = (part + self.offset) / np.float32(scale) - self.offset
            parts.append(part)
        tensor = np.transpose(np.concatenate(parts, axis=self.axis), np.argsort(self._order))
        return np.reshape(tensor, self.shape)

    @property
    def _view(self):
        return self.shape if self.view is None else self.view

    @property
    def _order(self):
        return range(len(self._view)) if self.axes is None else self.axes

    def _part_shapes(self):
        """Return the shape of each variable's part of the tensor, before it is split."""
        shape = [self._view[axis] for axis in self._order]
        shape[self.axis] = 1
        rest = math.prod(shape)
        shapes = [list(shape) for _ in self.variables]
        for part, variable in zip(shapes, self.variables, strict=True):
            part[self.axis] = math.prod(variable.shape) // rest
        return shapes

    def _with_scales(self, values):
        scales = self.scales or (1.0,) * len(self.variables)
        return zip(self.variables, values, scales, strict=True)


class LastRows:
    """A table of positions that a checkpoint stores after `first` rows of no position."""

    def __init__(self, table, first):
        self.variables, self._first = [table], first
        self.shape = first + table.shape[0], table.shape[1]

    def assign(self, tensor):
        """Assign the last rows of a tensor to the table."""
        assign(self.variables[0], tensor[self._first :])

    def tensor(self):
        """Return the table after rows of zeros, float32."""
        return np.pad(numbers(self.variables[0]), ((self._first, 0), (0, 0)))


class SharedTable:
    """A table of a checkpoint that several variables hold, such as T5's distances in each block."""

    def __init__(self, variables):
        self.variables, self.shape = variables, tuple(variables[0].shape)

    def assign(self, tensor):
        """Assign the table to each variable."""
        for variable in self.variables:
            assign(variable, tensor)

    def tensor(self):
        """Return the table of the variables, which must be equal."""
        first, *others = map(numbers, self.variables)
        if not all(np.array_equal(first, other) for other in others):
            raise ValueError(
                "The tables of distances of all blocks must be equal, since the family has one: "
                "train with `block.attention.score.terms[-1].trainable = False`. "
                f"Received: other numbers than those of {self.variables[0].path!r}."
            )
        return first


def numbers(variable):
    """Return the values of a variable as a float32 array."""
    return ops.convert_to_numpy(variable.value).astype("float32")


def copy_table(checkpoint, part, table, prefix=""):
    """Copy the tensors of a table, with `prefix` before each name.

    A tuple of paths is of layers that the file joins to one.
    """
    for path, name in table.items():
        if isinstance(path, tuple):
            copy_joined_denses(checkpoint, [getattr(part, x) for x in path], prefix + name)
        else:
            copy_part(checkpoint, part, path, prefix + name)


def copy_blocks(checkpoint, blocks, table, prefix):
    """Copy the tensors of each block of a stack; `prefix` has a field `{}` for its index."""
    for index, block in enumerate(blocks):
        copy_table(checkpoint, block, table, prefix.format(index))


def copy_part(checkpoint, part, path, name):
    """Copy the tensors `name` of the layer or variable at `path` in `part`; "" is `part` itself."""
    *steps, last = path.split(".")
    for step in steps:
        part = getattr(part, step)
    if isinstance(part, HeadProjections) and last in part.kernel_names():
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
    fold = Fold([variable], shape[::-1], (1, 0)) if transpose else Fold([variable], shape)
    checkpoint.transfer(name, fold)


def copy_projection(checkpoint, attention, projection, name, has_bias=True, scale=None):
    """Copy a linear layer of all heads; times `scale` it is a projection of an attention.

    `has_bias=False` is for a family that has no bias here, but has one in other projections: the
    bias of ours is 0 then.
    """
    kernel = getattr(attention, f"{projection}_kernel")
    bias = getattr(attention, f"{projection}_bias")
    inputs, outputs = matrix_shape(kernel, projection)
    scales = None if scale is None else (scale,)
    checkpoint.transfer(f"{name}.weight", Fold([kernel], (outputs, inputs), (1, 0), scales))
    if bias is not None and has_bias:
        checkpoint.transfer(f"{name}.bias", Fold([bias], (outputs,), scales=scales))
    elif bias is not None:
        checkpoint.transfer_zero(bias)


def copy_joined_heads(checkpoint, attention, name, by_group=False):
    """Copy one linear layer of queries, keys and values.

    Its rows are those of all queries, then of all keys and of all values. `by_group=True` is for
    rows of each group: those of its heads of queries, then of its key and its value.
    """
    parts = ("query", "key", "value")
    groups, size = attention.num_key_value_heads, attention.key_dim
    heads = attention.num_heads + 2 * groups
    for kind, end in (("kernel", "weight"), ("bias", "bias")):
        weights = [getattr(attention, f"{part}_{kind}") for part in parts]
        if weights[0] is None:
            continue
        inputs = tuple(weights[0].shape[:-2])  # (D,) of a kernel
        view = (groups, heads // groups, size, *inputs) if by_group else (heads, size, *inputs)
        last = len(view) - 1
        order = (last, *range(last)) if inputs else None
        axis = len(inputs) + by_group
        shape = (heads * size, *inputs)
        checkpoint.transfer(f"{name}.{end}", Fold(weights, shape, order, view=view, axis=axis))


def copy_joined_denses(checkpoint, denses, name):
    """Copy one linear layer of the outputs of several, of equal inputs."""
    kernels = [dense.kernel for dense in denses]
    outputs = sum(dense.units for dense in denses)
    joined = Fold(kernels, (outputs, kernels[0].shape[0]), (1, 0))
    checkpoint.transfer(f"{name}.weight", joined)
    if denses[0].bias is not None:
        checkpoint.transfer(f"{name}.bias", Fold([dense.bias for dense in denses], (outputs,)))


def matrix_shape(kernel, projection):
    """Return the number of inputs and of outputs of a projection's kernel."""
    split = 2 if projection == "output" else 1  # (N, H, D) and (D, N, H)
    shape = tuple(kernel.shape)
    return int(np.prod(shape[:split])), int(np.prod(shape[split:]))
