"""Who waits for an answer: until when, and whether they still wait."""

import threading
import time

from .errors import Code, ServingError


class RequestContext:
    """A request's time limit and its cancellation, from its arrival on.

    Args:
        timeout_ms: int or None. Time limit in milliseconds.
    """

    def __init__(self, timeout_ms=None):
        self.deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks = []

    def remaining(self):
        """Seconds left, or None without a limit.

        Raises:
            ServingError: if the caller waits no longer.
        """
        if self._cancelled:
            raise ServingError(Code.CANCELLED, "The client has gone away")
        if self.deadline is None:
            return None
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise ServingError(Code.DEADLINE_EXCEEDED, "The request's time limit has passed")
        return seconds

    def cancel(self):
        """The client has gone away: what waits for it is told."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback):
        """Calls a function when the client goes away, at once if it has."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()
