"""The end of a training by a signal."""

import signal

import keras

from keras_attn import callbacks
from keras_attn.callbacks.deferred_signal import DeferredSignal


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
