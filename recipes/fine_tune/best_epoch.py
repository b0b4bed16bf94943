"""Early stopping, also of a resumed run."""

import os

import keras

from keras_attn.backend.replicas import processes_share_state, wait_for_processes, whole_model
from keras_attn.callbacks.npz import read_arrays, write_arrays
from keras_attn.distribution.workers import worker_of

from ..card import read_history


class BestEpoch(keras.callbacks.Callback):
    """Keep the weights of the epoch with the lowest validation loss, and stop some epochs later.

    The losses of earlier epochs are read from the run's history, and the weights from a file, so
    that a resumed run counts the epochs before it. Of processes that share the weights the first
    one writes it; on TensorFlow each writes one of its own.

    Args:
        path: str. File of the weights, `.npz`.
        history: str. The run's `history.csv`.
        patience: int. Epochs without a lower loss that end the training.
    """

    def __init__(self, path, history, patience):
        super().__init__()
        self._path, self._history, self._patience = path, history, patience
        self._losses, self._writes = [], True

    def set_model(self, model):
        super().set_model(model)
        index, _ = worker_of(model)
        self._writes = index == 0 or not processes_share_state()
        if self._writes and index:
            stem, ending = os.path.splitext(self._path)
            self._path = f"{stem}-worker-{index}{ending}"

    def on_train_begin(self, logs=None):
        self._losses = [row["val_loss"] for row in read_history(self._history)]

    def on_epoch_end(self, epoch, logs=None):
        if not self._losses or logs["val_loss"] < min(self._losses):
            with whole_model(self.model):  # of which each process may hold a part
                weights = self.model.get_weights()
            if self._writes:
                write_arrays(self._path, weights)
        self._losses.append(logs["val_loss"])
        best = self._losses.index(min(self._losses))
        if len(self._losses) - 1 - best >= self._patience:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        wait_for_processes()  # the first one has then written the last best epoch
        self.model.set_weights(read_arrays(self._path)[0])
