"""DeBERTa's tables of distances: one of the checkpoint, and its projections, which are ours.

The table R (2S, D) of all blocks is multiplied by matrices W of each block; our blocks hold the
products K = R W^T + b.
"""

import numpy as np

from keras_attn.compat.unallocated import assign
from keras_attn.convert.hugging_face.weights import numbers

# Largest relative error of the tables when they are written as projections of one.
_ROUNDING = 1e-6


class TransientTensor:
    """A tensor of a checkpoint that is not a variable: it is kept when it is read.

    Args:
        shape: of the tensor.
    """

    def __init__(self, shape):
        self.shape, self.value = tuple(shape), None

    def assign(self, tensor):
        self.value = tensor


class SharedDistanceTable(TransientTensor):
    """The table R of all blocks.

    For a model that is written, the columns of R are orthonormal, so that W = (K - b)^T R. If there
    are at most D rows, R is a unit matrix and b = 0. Otherwise R has the D directions in which the
    rows of all K - b differ from 0, where b is the mean of the rows.

    Args:
        tables: variables K (2S, N, H) of all blocks.
        width: int. Width D of R.

    Raises:
        ValueError: if `tensor` needs more than D directions.
    """

    def __init__(self, tables, width):
        super().__init__((tables[0].shape[0], width))
        self.variables = tables

    @property
    def has_offset(self):
        """True if the mean of the rows of K is its bias b."""
        return self.shape[0] > self.shape[1]

    def normalize(self, gain, shift, epsilon):
        """Replace the table that was read by its norm."""
        centred = self.value - self.value.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
        self.value = centred / deviation * gain + shift

    def project(self, table, kernel, bias=0.0):
        """Assign R times a kernel (D, N H), plus a bias, to a table."""
        assign(table, np.reshape(self.value @ kernel + bias, table.shape))

    def tensor(self):
        """Return the table R for the values of the variables."""
        rows, width = self.shape
        if self.value is None and not self.has_offset:
            self.value = np.eye(rows, width, dtype="float32")
        elif self.value is None:
            total = np.zeros((rows, rows))
            for table in self.variables:
                flat = flatten(table).astype("float64")
                centred = flat - flat.mean(axis=0)
                total += centred @ centred.T
            sizes, directions = np.linalg.eigh(total)  # from the smallest on
            residual_share = np.sqrt(max(sizes[: rows - width].sum(), 0) / sizes.sum())
            if residual_share > _ROUNDING:
                raise ValueError(
                    "The tables of distances must be projections of one table of the width "
                    f"{width}, since the model has {rows} distances: train with "
                    "`block.attention.score.trainable = False`. "
                    f"Received: tables of which {residual_share:.2g} is no such projection."
                )
            self.value = directions[:, rows - width :].astype("float32")
        return self.value


class DistanceProjection:
    """The matrix W (N H, D) of a block's table K."""

    def __init__(self, table, distances):
        self.variables, self._distances = [table], distances
        self.shape = int(np.prod(table.shape[1:])), distances.shape[1]

    def assign(self, tensor):
        """Assign R W^T to the table."""
        self._distances.project(self.variables[0], tensor.T)

    def tensor(self):
        """Return W."""
        table = flatten(self.variables[0])
        table = table - table.mean(axis=0) if self._distances.has_offset else table
        return table.T @ self._distances.tensor()


class DistanceBias:
    """The bias b (N H) of a block's table K."""

    def __init__(self, table, distances):
        self.variables, self._distances = [table], distances
        self.shape = (int(np.prod(table.shape[1:])),)

    def assign(self, tensor):
        """Add b to each row of the table."""
        table = self.variables[0]
        assign(table, numbers(table) + np.reshape(tensor, (1, *table.shape[1:])))

    def tensor(self):
        """Return b."""
        mean = flatten(self.variables[0]).mean(axis=0)
        return mean if self._distances.has_offset else np.zeros_like(mean)


def flatten(table):
    """Return the values (2S, N H) of a table (2S, N, H)."""
    return np.reshape(numbers(table), (table.shape[0], -1))
