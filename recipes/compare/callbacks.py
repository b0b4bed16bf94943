"""Callbacks of each training."""

import signal
import time

import keras

from keras_attn import callbacks
from keras_attn.callbacks.deferred_signal import DeferredSignal


class TrainingSeconds(keras.callbacks.Callback):
    """Measure the steps of each epoch, without the validation after them."""

    def __init__(self):
        super().__init__()
        self.by_epoch = []

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self._ended = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.by_epoch.append(self._ended - self._started)


class StopOnSignal(keras.callbacks.Callback):
    """End training after the batch in which SIGTERM or Ctrl-C arrived."""

    def __init__(self):
        super().__init__()
        self._errors = {
            DeferredSignal(signal.SIGTERM): callbacks.Terminated,
            DeferredSignal(signal.SIGINT): KeyboardInterrupt,
        }

    def on_train_begin(self, logs=None):
        for deferred in self._errors:
            deferred.watch()

    def on_train_batch_end(self, batch, logs=None):
        for deferred, error in self._errors.items():
            if deferred.received is not None:
                raise error

    def on_test_batch_end(self, batch, logs=None):
        self.on_train_batch_end(batch)

    def on_train_end(self, logs=None):
        for deferred in self._errors:
            deferred.stop()
        self.on_train_batch_end(None)
