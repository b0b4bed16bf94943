"""Writing of checkpoints beside the training."""

import atexit
import os
import sys
import threading
import weakref

_WRITERS = weakref.WeakSet()


class BackgroundWriter:
    """Run one function at a time in a thread of its own.

    A process that ends normally waits for the thread. `directory` is where the functions write:
    `wait_for_writes` waits for all of a directory.
    """

    def __init__(self, directory):
        self.directory = os.path.realpath(directory)
        self._thread = self._error = None
        _WRITERS.add(self)

    def start(self, function, *arguments, **named):
        """Call a function in the thread, once the one before has ended."""
        self.join()

        def call():
            try:
                function(*arguments, **named)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=call)
        self._thread.start()

    def join(self):
        """Wait for the function, and raise its error."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def check(self):
        """Raise the error of the function if it has ended with one."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def wait_for_writes(directory=None):
    """Wait for the functions that write to a directory, by default to any, and print their errors.

    For training that another error has ended: nothing else asks for these then.
    """
    for writer in list(_WRITERS):
        if directory is None or writer.directory == os.path.realpath(directory):
            try:
                writer.join()
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


atexit.register(wait_for_writes)
