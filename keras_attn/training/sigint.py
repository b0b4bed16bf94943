"""Ctrl-C, which Keras would lose."""

import signal
import threading


class Sigint:
    """Notes that Ctrl-C was pressed, from `watch` to `stop`.

    Keras (3.15) reads the metrics of a batch inside a bare `except`. On JAX that is where it waits
    for the batch, so that most KeyboardInterrupts are raised there and never seen again.
    """

    def __init__(self):
        self.received = False
        self._previous = None

    def watch(self):
        self.received = False
        if self._previous is not None or threading.current_thread() != threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGINT)
        if callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self._note)

    def stop(self):
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _note(self, number, frame):
        previous = self._previous
        self.stop()
        try:
            previous(number, frame)
        except KeyboardInterrupt:
            self.received = True
            raise
