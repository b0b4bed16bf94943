"""The rows of a batch that one process feeds to its devices."""

from typing import NamedTuple

import keras
import numpy as np


class Rows(NamedTuple):
    """The part of the rows of each batch that one of several processes feeds.

    A batch is filled with rows of zeros up to the next multiple of the replicas, then cut into
    equal parts. Processes whose devices hold one replica together feed the same part.

    Args:
        replicas: int. Devices that the rows are divided among.
        parts: int. Number of the parts.
        part: int. Index of this one.
    """

    replicas: int = 1
    parts: int = 1
    part: int = 0

    @classmethod
    def here(cls, distribution):
        """Return the rows of this process under a `keras.distribution.Distribution` or None."""
        if distribution is None:
            return cls()
        replicas = distribution.num_model_replicas
        parts = min(replicas, distribution.num_processes)
        return cls(replicas, parts, distribution.data_shard_id if parts > 1 else 0)

    def of(self, num_rows):
        """Return the range of rows of a batch of so many; those past its end are rows of zeros."""
        each = -(-num_rows // self.replicas) * self.replicas // self.parts
        return range(self.part * each, (self.part + 1) * each)

    def cut(self, batch):
        """Return the rows of a whole batch, a structure of arrays (B, ...)."""

        def rows_of(x):
            rows = self.of(len(x))
            x = np.asarray(x)[rows.start : rows.stop]
            return np.pad(x, [(0, len(rows) - len(x))] + [(0, 0)] * (x.ndim - 1))

        return batch if self.replicas == 1 else keras.tree.map_structure(rows_of, batch)


class RowBatches:
    """Batches of which each process makes its own rows only."""

    def batch(self, epoch, index, rows=Rows()):
        """Return a batch; `rows`, a `Rows`, selects the rows of one process: by default all."""
        raise NotImplementedError(f"{type(self).__name__} must define `batch`.")
