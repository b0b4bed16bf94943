"""A request's time limit and cancellation, and the threads that run requests."""

import asyncio
import contextlib
import logging
import threading
import time
import types

import anyio

from .errors import Code, ServingError

_log = logging.getLogger(__name__)


class RequestContext:
    """Time limit (in milliseconds, or None) and cancellation of a request, from its arrival on."""

    def __init__(self, timeout_ms=None):
        self.deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._lock, self._cancelled, self._callbacks = threading.Lock(), False, []

    def remaining(self):
        """Return the seconds left, or None without a limit; raise if the request has ended."""
        if self._cancelled:
            raise ServingError(Code.CANCELLED, "The client has gone away")
        if self.deadline is None:
            return None
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise ServingError(Code.DEADLINE_EXCEEDED, "The request's time limit has passed")
        return seconds

    def cancel(self):
        """Record that the client has gone away, and call what `on_cancel` collected."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback):
        """Call a function when the client goes away, at once if it already has."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def forget(self, callback):
        """Take back an `on_cancel`, so that the request keeps nothing of what has ended."""
        with self._lock, contextlib.suppress(ValueError):
            self._callbacks.remove(callback)


@contextlib.contextmanager
def catch_errors(record=None):
    """Yield an object whose `error` is the `ServingError` that ends the block, whatever fails.

    The `RequestRecord` counts the request by how the block ends.
    """
    failure, code = types.SimpleNamespace(error=None), Code.CANCELLED
    try:
        yield failure
        code = Code.OK
    except ServingError as error:
        failure.error, code = error, error.code
    except Exception:  # The client gets an answer whatever fails.
        _log.exception("A request failed")
        failure.error, code = ServingError(Code.INTERNAL, "Internal error"), Code.INTERNAL
    finally:
        if record:
            record.end(code)


class Workers:
    """Threads that run requests, and a bound on the requests that wait for one.

    Used from the event loop alone.
    """

    def __init__(self, num_threads, max_waiting):
        self._limiter = anyio.CapacityLimiter(num_threads)
        self._max_waiting, self._max_unanswered = max_waiting, num_threads + max_waiting
        self._unanswered = 0

    def check_load(self):
        """Raise if too many requests wait already, before more of one is read."""
        if self._unanswered >= self._max_unanswered:
            message = f"The server is busy: {self._max_waiting} requests wait already"
            raise ServingError(Code.RESOURCE_EXHAUSTED, message)

    @contextlib.contextmanager
    def admit(self):
        """Count a request that has arrived whole, until the block ends; raise if too many wait."""
        self.check_load()
        self._unanswered += 1
        try:
            yield
        finally:
            self._unanswered -= 1

    async def run(self, function, request_context):
        """Return what a function returns on a thread.

        If the awaiting task is cancelled, the request is too; the thread is awaited all the same,
        so that it counts as long as it runs.
        """
        work = asyncio.ensure_future(anyio.to_thread.run_sync(function, limiter=self._limiter))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            request_context.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise
