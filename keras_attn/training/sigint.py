"""Ctrl-C, which Keras would lose."""

import signal
import threading

import keras


class Sigint(keras.callbacks.Callback):
    """Ends training after the batch in which Ctrl-C was pressed, if nothing has ended it before.

    Keras (3.15) reads the metrics of a batch inside a bare `except`. On JAX that is where it waits
    for the batch, so that most KeyboardInterrupts are raised there and never seen again.
    """

    def __init__(self):
        super().__init__()
        self._received = False
        self._previous = None

    def on_train_begin(self, logs=None):
        self._received = False
        if self._previous is not None or threading.current_thread() != threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGINT)
        if callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self._note)

    def on_train_batch_end(self, batch, logs=None):
        self.check()

    def on_test_batch_end(self, batch, logs=None):
        self.check()

    def on_epoch_end(self, epoch, logs=None):
        self.check()

    def on_train_end(self, logs=None):
        self.stop()
        self.check()

    def check(self):
        """Raises the KeyboardInterrupt that was lost."""
        if self._received:
            self._received = False
            raise KeyboardInterrupt

    def stop(self):
        """Leaves Ctrl-C to what it was left to before."""
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _note(self, number, frame):
        previous = self._previous
        self.stop()
        try:
            previous(number, frame)
        except KeyboardInterrupt:
            self._received = True
            raise
