"""The end of a program that was told to end."""

import inspect
import os
import signal
import threading
import time


class Terminated(SystemExit):
    """Training has ended because the process received SIGTERM, for which `Resume` watches; the same
    program, started again, goes on from the last checkpoint.

    A program that does not catch it ends, as one that does not handle the signal, with the exit
    code of a shell's child: 143 = 128 + 15. `except Exception` does not catch it.

    Example:

    >>> from keras_attn.callbacks import Terminated
    >>> Terminated().code
    143
    """

    def __init__(self, code=143):
        super().__init__(code)


class DeferredSignal:
    """Notes that the process was sent a signal, SIGTERM or SIGINT, from `watch` to `stop`.

    Ctrl-C, which is SIGINT, is so not lost: Keras (3.15) reads the metrics of a batch inside a bare
    `except`, and on JAX, which waits for the batch there, most KeyboardInterrupts would end in it.

    Only the first signal is noted: a second one does what it did before `watch`. So does one that
    arrives when the loop that `watch` was called from has ended without `stop`, by an exception. A
    handler of SIGINT that is the program's own stays. Python can handle signals in the main thread
    alone; elsewhere nothing is watched.
    """

    def __init__(self, number):
        self.received = None  # when, by time.monotonic()
        self._number = number
        self._previous = self._loop = None

    def watch(self):
        self.received = None
        if self._previous is not None or threading.current_thread() != threading.main_thread():
            return
        previous = signal.getsignal(self._number)
        if previous in (None, signal.SIG_IGN):  # not ours to handle
            return
        if self._number == signal.SIGINT and previous is not signal.default_int_handler:
            return
        frame = inspect.currentframe().f_back
        while frame.f_code.co_name == "on_train_begin":
            frame = frame.f_back
        self._previous, self._loop = previous, frame.f_code
        signal.signal(self._number, self._note)

    def stop(self):
        if self._previous is not None:
            signal.signal(self._number, self._previous)
            self._previous = None

    def _note(self, number, frame):
        self.stop()
        while frame is not None and frame.f_code is not self._loop:
            frame = frame.f_back
        if frame is None:
            os.kill(os.getpid(), number)
        else:
            self.received = time.monotonic()
