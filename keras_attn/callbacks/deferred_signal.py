"""Signals that end training after the batch in progress."""

import inspect
import os
import signal
import threading
import time
import weakref


class Terminated(SystemExit):
    """Training has ended because the process received SIGTERM while `Resume` was active.

    The same program, started again, resumes from the last checkpoint. A program that does not
    catch the exception exits with the code of a process that SIGTERM has ended: 143 = 128 + 15.
    `except Exception` does not catch it.

    Args:
        code: int. Exit code of the process.

    Example:
        >>> from keras_attn.callbacks import Terminated
        >>> Terminated().code
        143
    """

    def __init__(self, code=143):
        super().__init__(code)


class DeferredSignal:
    """Record that the process has received a signal, SIGTERM or SIGINT, from `watch` to `stop`.

    Ctrl-C (SIGINT) must be recorded, or it would be lost: Keras 3.15 reads the metrics of a batch
    inside a bare `except`, and on JAX, which waits for the batch there, most KeyboardInterrupts
    would end in it.

    Only the first signal is recorded; a second one has the effect that it had before `watch`. So
    has one that arrives after the loop that called `watch` has ended by an exception, without
    `stop`. A handler of SIGINT that the program has set is left in place. Python handles signals
    in the main thread only; in other threads `watch` does nothing.

    Attributes:
        received: time of the signal, by `time.monotonic()`; None before.
    """

    def __init__(self, number):
        self.received = None
        self._number = number
        self._previous = self._loop = self._callbacks = None

    def watch(self):
        self.received = None
        if self._previous is not None or threading.current_thread() != threading.main_thread():
            return
        previous = signal.getsignal(self._number)
        if previous in (None, signal.SIG_IGN):  # set outside Python, or to be ignored
            return
        if self._number == signal.SIGINT and previous is not signal.default_int_handler:
            return
        frame = inspect.currentframe().f_back
        while frame.f_code.co_name == "on_train_begin":
            # In the end the list of callbacks, of which every `fit` has one of its own.
            self._callbacks = weakref.ref(frame.f_locals["self"])
            frame = frame.f_back
        self._previous, self._loop = previous, frame.f_code
        signal.signal(self._number, self._record)

    def stop(self):
        if self._previous is not None:
            signal.signal(self._number, self._previous)
            self._previous = None

    def _record(self, number, frame):
        self.stop()
        while frame is not None and not self._is_loop(frame):
            frame = frame.f_back
        if frame is None:  # the loop has ended: deliver the signal to the previous handler
            os.kill(os.getpid(), number)
        else:
            self.received = time.monotonic()

    def _is_loop(self, frame):
        if frame.f_code is not self._loop:
            return False
        callbacks = self._callbacks()
        return callbacks is not None and any(x is callbacks for x in frame.f_locals.values())
