"""Batches made in Python, as `fit` takes them on any backend."""

import keras
import numpy as np

from keras_attn.text.datasets import dataset_of, rows_to_feed


class EpochDataset(keras.utils.PyDataset):
    """Epochs of batches that are functions of the epoch and of their place in it.

    So training that goes on sees what it would have seen. Keras counts the batches of an epoch
    once, before the first; what is left of one that was begun is `rest`, for a `fit` of its own.

    Args:
        batches: object with `len()`, the batches of an epoch, and `batch(epoch, index)`, inputs and
            labels as arrays.
        free_axes: the axes whose size is not the same in all batches.
        begin: int. The batch that an epoch begins with.

    Attributes:
        epoch: the epoch that is read; `following()` is a callback that sets it.
    """

    def __init__(self, batches, free_axes=(), begin=0):
        super().__init__()
        self._batches, self._free_axes, self._begin = batches, free_axes, begin
        self.epoch = 0

    def __len__(self):
        return len(self._batches) - self._begin

    def __getitem__(self, index):
        return rows_to_feed(self._batch(index), keras.distribution.distribution())

    def rest(self, done):
        """Epochs without their first `done` batches."""
        return EpochDataset(self._batches, self._free_axes, done)

    def following(self):
        """A callback by which the epoch that is read is the one that is trained."""

        def follow(epoch, logs):
            self.epoch = epoch

        return keras.callbacks.LambdaCallback(on_epoch_begin=follow)

    def data(self):
        """What `fit` and `evaluate` take: a dataset on TensorFlow, elsewhere this object.

        Under a strategy it is made in the scope.
        """
        if keras.backend.backend() != "tensorflow":
            return self
        signature = keras.tree.map_structure(self._spec, self._batch(0))
        return dataset_of(self._one_pass, signature, len(self))

    def _batch(self, index):
        return self._batches.batch(self.epoch, self._begin + index)

    def _one_pass(self):
        return map(self._batch, range(len(self)))

    def _spec(self, array):
        import tensorflow as tf

        array = np.asarray(array)
        shape = [None if axis in self._free_axes else n for axis, n in enumerate(array.shape)]
        return tf.TensorSpec(shape, array.dtype)
