"""Writing of checkpoints beside the training."""

import os
import threading


class BackgroundWriter:
    """Run one function at a time in a thread of its own.

    A process that ends normally waits for the thread. `directory` is where the functions write:
    `wait_for_writes` waits for all of a directory.
    """

    def __init__(self, directory):
        self._name = _thread_name(directory)
        self._thread = self._error = None

    def start(self, function, *arguments, **named):
        """Call a function in the thread, once the one before has ended."""
        self.join()

        def call():
            try:
                function(*arguments, **named)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=call, name=self._name)
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
    """Wait for the threads that write to a directory, by default to any."""
    name = _thread_name(directory)
    for thread in threading.enumerate():
        if thread.name == name or directory is None and thread.name.startswith(name):
            thread.join()


def _thread_name(directory):
    return "checkpoints in " + ("" if directory is None else os.path.realpath(directory))
