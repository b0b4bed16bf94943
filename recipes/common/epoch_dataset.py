"""Batches made in Python, as `fit` takes them on any backend."""

import keras
import numpy as np

from keras_attn.text.batches.datasets import RowBatches, Rows, dataset_of


class EpochDataset(keras.utils.PyDataset):
    """Epochs of batches that are functions of the epoch and of their index in it.

    So a resumed training reads the same batches. Keras counts the batches of an epoch once, before
    the first; `rest` is the rest of an interrupted epoch, for a `fit` of its own. Each of several
    processes feeds its part of the rows; of `RowBatches` it makes only these.

    Args:
        batches: object with `len()`, the batches of an epoch, and `batch(epoch, index)`, inputs and
            labels as arrays.
        free_axes: the axes whose size differs between batches.
        start: int. The first batch of an epoch.
        stop: int. The batch before which an epoch ends, or None for all batches.

    Attributes:
        epoch: the current epoch, which `epoch_callback()` sets.
    """

    def __init__(self, batches, free_axes=(), start=0, stop=None):
        super().__init__()
        self._batches, self._free_axes, self._start = batches, free_axes, start
        self._stop = len(batches) if stop is None else min(stop, len(batches))
        self.epoch = 0

    def __len__(self):
        return self._stop - self._start

    def __getitem__(self, index):
        return self._batch(index, Rows.here(keras.distribution.distribution()))

    def rest(self, done):
        """Return epochs without their first `done` batches."""
        return EpochDataset(self._batches, self._free_axes, done, self._stop)

    def epoch_callback(self):
        """Return a callback that sets `epoch` to the epoch of the training."""

        def set_epoch(epoch, logs):
            self.epoch = epoch

        return keras.callbacks.LambdaCallback(on_epoch_begin=set_epoch)

    def data(self):
        """Return the argument of `fit` and `evaluate`: a dataset on TensorFlow, else this object.

        Call it in the scope of the strategy.
        """
        if keras.backend.backend() != "tensorflow":
            return self
        signature = keras.tree.map_structure(self._spec, self._batch(0))
        return dataset_of(self._one_epoch, signature, len(self))

    def _batch(self, index, rows=Rows()):
        place = self.epoch, self._start + index
        if isinstance(self._batches, RowBatches):
            return self._batches.batch(*place, rows)
        return rows.cut(self._batches.batch(*place))

    def _one_epoch(self, rows):
        return (self._batch(index, rows) for index in range(len(self)))

    def _spec(self, array):
        import tensorflow as tf

        array = np.asarray(array)
        shape = [None if axis in self._free_axes else n for axis, n in enumerate(array.shape)]
        return tf.TensorSpec(shape, array.dtype)
