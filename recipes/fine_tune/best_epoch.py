"""Early stopping, also of a resumed run."""

import os

import keras

from keras_attn.backend.replicas import processes_share_state, wait_for_processes, whole_values
from keras_attn.callbacks.npz import read_arrays, write_arrays
from keras_attn.distribution.workers import worker_of

from ..card import read_history


class BestEpoch(keras.callbacks.Callback):
    """Keep the weights of the epoch with the lowest validation loss, and stop some epochs later.

    The losses of earlier epochs are read from the run's history, and the weights from a file, so
    that a resumed run counts the epochs before it. They are read once, and without the epochs that
    are trained again, so that all processes decide alike. Of processes that share the weights the
    first one writes the file. TensorFlow's do not wait for each other, so each writes its own.

    Args:
        path: str. File of the weights, `.npz`.
        history: str. The run's `history.csv`.
        patience: int. Epochs without a lower loss that end the training.
    """

    def __init__(self, path, history, patience):
        super().__init__()
        self._path, self._history, self._patience = path, history, patience
        self._losses = None

    def on_epoch_begin(self, epoch, logs=None):
        if self._losses is None:
            rows = read_history(self._history)
            self._losses = [row["val_loss"] for row in rows if row["epoch"] < epoch]

    def on_epoch_end(self, epoch, logs=None):
        if not self._losses or logs["val_loss"] < min(self._losses):
            with whole_values(self.model.variables):
                weights = self.model.get_weights()
            if worker_of(self.model)[0] == 0 or not processes_share_state():
                write_arrays(self._own_path(), weights)
        self._losses.append(logs["val_loss"])
        best = self._losses.index(min(self._losses))
        if len(self._losses) - 1 - best >= self._patience:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        wait_for_processes()  # the first one has then written the last best epoch
        self.model.set_weights(read_arrays(self._own_path())[0])

    def _own_path(self):
        index, _ = worker_of(self.model)
        if index == 0 or processes_share_state():
            return self._path
        stem, ending = os.path.splitext(self._path)
        return f"{stem}-worker-{index}{ending}"
