"""A request's time limit and cancellation, and the places and threads of running requests."""

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import threading
import time

from .errors import Code, ServingError
from .tensors import are_few

# A request of so many bytes is read, and its answer written, in about a millisecond. The event loop
# does that itself, since to wake a thread for it takes longer.
SHORT_BYTES = 16384

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


class catch_errors:
    """Context whose `error` is the `ServingError` that ends the block, whatever fails.

    The `RequestRecord` counts the request by how the block ends.
    """

    def __init__(self, record=None):
        self.error, self._record = None, record

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _traceback):
        code = Code.OK
        if isinstance(error, ServingError):
            self.error, code = error, error.code
        elif isinstance(error, Exception):  # The client gets an answer whatever fails.
            _log.error("A request failed", exc_info=error)
            self.error, code = ServingError(Code.INTERNAL, "Internal error"), Code.INTERNAL
        elif error:
            code = Code.CANCELLED
        if self._record:
            self._record.end(code)
        return self.error is not None


class Workers:
    """Places for requests that run at once, threads for them, and a bound on those that wait.

    A request that waits for its batch keeps its place and needs no thread. Used from the event loop
    alone.
    """

    def __init__(self, num_threads, max_waiting):
        self._places = asyncio.Semaphore(num_threads)
        self._threads = concurrent.futures.ThreadPoolExecutor(num_threads, "requests")
        self._max_waiting, self._max_unanswered = max_waiting, num_threads + max_waiting
        self._unanswered = 0

    def check_load(self):
        """Raise if too many requests wait already, before more of one is read."""
        if self._unanswered >= self._max_unanswered:
            message = f"The server is busy: {self._max_waiting} requests wait already"
            raise ServingError(Code.RESOURCE_EXHAUSTED, message)

    def admit(self):
        """Count a request that has arrived whole, in `with`; raise if too many wait."""
        self.check_load()
        return self

    def __enter__(self):
        self._unanswered += 1

    def __exit__(self, *_):
        self._unanswered -= 1

    def place(self):
        """Return the context, for `async with`, of a request that runs; it may have to wait."""
        return self._places

    async def run(self, function, request_context):
        """Return what a function returns on a thread, in a place of its own."""
        async with self._places:
            return await self.call(function, request_context)

    async def call(self, function, request_context, is_short=False):
        """Return what a function returns, on a thread unless it `is_short`; in a `place`.

        If the awaiting task is cancelled, the request is too; the thread is awaited all the same,
        so that it counts as long as it runs.
        """
        if is_short:
            return function()
        work = asyncio.get_running_loop().run_in_executor(self._threads, function)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            request_context.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise

    async def answer(self, servable, prepare, request_context, is_short):
        """Return the answer to the `GraphCall` that `prepare` returns; in a `place`.

        What `is_short` (a request of few bytes, an answer of few values) is done on the event loop,
        which takes less time than to wake a thread.
        """
        call = await self.call(prepare, request_context, is_short)
        with call.measure():
            arguments = call.feeds, call.fetches, request_context
            outputs = await servable.run_in_batch(*arguments)
            if outputs is None:
                run = functools.partial(servable.run, *arguments)
                outputs = await self.call(run, request_context)
        finish = functools.partial(call.finish, outputs)
        return await self.call(finish, request_context, is_short and are_few(outputs))
