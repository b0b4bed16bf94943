"""Early stopping, also of a resumed run."""

import math
import os

import keras

from keras_attn.backend.replicas import processes_share_state, wait_for_processes, whole_values
from keras_attn.callbacks.training_state import ArraysFile, read_arrays, write_arrays
from keras_attn.distribution.workers import worker_of


class BestEpoch(keras.callbacks.Callback):
    """Keep the weights of the epoch with the lowest validation loss, and stop some epochs later.

    A loss of NaN is above any other. The file of the weights has their epoch and loss too, so that
    a resumed run counts the epochs before it. They are read once, before an epoch that all
    processes begin together, so that all decide alike. Of processes that share the weights the
    first one writes the file. TensorFlow's do not wait for each other, so each writes its own.

    Args:
        path: str. File of the weights, `.npz`.
        patience: int. Epochs without a lower loss that end the training.

    Raises:
        ValueError: if the file is damaged, or of an earlier version, which wrote no loss.
    """

    def __init__(self, path, patience):
        super().__init__()
        self._path, self._patience = path, patience
        self._best = None  # epoch and loss

    def is_finished(self, epoch):
        """Return True if the epochs before this one have ended the training; reads the file."""
        self._read(epoch)
        return self._is_last(epoch - 1)

    def on_epoch_begin(self, epoch, logs=None):
        if self._best is None:
            self._read(epoch)

    def on_epoch_end(self, epoch, logs=None):
        loss = logs["val_loss"]
        if self._is_better(loss):
            self._best = epoch, loss
            with whole_values(self.model.variables):
                weights = self.model.get_weights()
            if worker_of(self.model)[0] == 0 or not processes_share_state():
                write_arrays(self._own_path(), weights, index=self._best)
        if self._is_last(epoch):
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        wait_for_processes()  # the first one has then written the last best epoch
        self.model.set_weights(read_arrays(self._own_path())[0])
        if self._best is not None and math.isnan(self._best[1]):
            print("No epoch has a finite validation loss; lower --learning-rate may help.")

    def _is_better(self, loss):
        """Return True for a lower loss, and for the first that is a number."""
        if self._best is None:
            return True
        return loss < self._best[1] or (math.isnan(self._best[1]) and not math.isnan(loss))

    def _is_last(self, epoch):
        return self._best is not None and epoch - self._best[0] >= self._patience

    def _read(self, epoch):
        """Read the best epoch, unless it is later than this one, as that of an earlier training."""
        path = self._own_path()
        if not os.path.exists(path):
            return
        with ArraysFile(path) as file:
            best = file.index
        if best is None:
            raise ValueError(
                f"The file {path} must have the loss of its epoch; an earlier version wrote none, "
                "so give another --out. Received: no loss."
            )
        if best[0] <= epoch:
            self._best = best

    def _own_path(self):
        index, _ = worker_of(self.model)
        if index == 0 or processes_share_state():
            return self._path
        stem, ending = os.path.splitext(self._path)
        return f"{stem}-worker-{index}{ending}"
