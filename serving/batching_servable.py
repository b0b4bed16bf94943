"""Servable whose requests run in batches."""

import asyncio
import concurrent.futures
import contextlib
import logging
import time

import numpy as np
import tensorflow as tf

from .errors import Code, ServingError, require
from .limits import Limits
from .metrics import BATCH_SIZE, QUEUING_LATENCY, WRAPPED_RUNS
from .request_context import RequestContext

_log = logging.getLogger(__name__)

_MAX_PADDED_RANK = 6


class _Task:
    """Request, or a part of one, in a queue.

    A thread waits for its `future`. On an event loop, a `waiter` of that loop ends when the future
    does: the thread of a batch ends the waiters of all its tasks by one call.
    """

    def __init__(self, feeds, request_context, loop=None):
        self.feeds, self.request_context = feeds, request_context
        self.size, self.start = len(next(iter(feeds.values()))), time.monotonic()
        self.future = concurrent.futures.Future()
        self.waiter = loop and loop.create_future()

    def cancel(self):
        """Leave the queue, unless the task runs."""
        if self.future.cancel():
            _wake([self])

    def fail(self, error):
        """End with an error."""
        self.future.set_exception(error)
        _wake([self])

    def seconds(self):
        """Return the seconds that are left to the request, or None without a limit."""
        deadline = self.request_context.deadline
        return None if deadline is None else max(deadline - time.monotonic(), 0)

    def result(self, seconds):
        """Return the outputs when they are there, or raise after so many seconds."""
        try:
            return self.future.result(seconds)
        except concurrent.futures.CancelledError as error:
            raise ServingError(Code.CANCELLED, "The client has gone away") from error
        except TimeoutError as error:
            if self.future.cancel():
                message = "Run() timeout exceeded while waiting in batching queue"
                raise ServingError(Code.RESOURCE_EXHAUSTED, message) from error
            message = "Timed out waiting for notification"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from error

    async def wait(self):
        """Return the outputs, or raise, like `result`; on the event loop."""
        timer, seconds = None, self.seconds()
        if seconds is not None:
            timer = self.waiter.get_loop().call_later(seconds, _end, [self.waiter])
        try:
            await self.waiter
        finally:
            if timer:
                timer.cancel()
        return self.result(0)


def _wake(tasks):
    """Resume the requests of tasks that wait on an event loop."""
    waiters = [task.waiter for task in tasks if task.waiter]
    for loop in {waiter.get_loop() for waiter in waiters}:
        with contextlib.suppress(RuntimeError):  # It is closed, and nobody waits.
            loop.call_soon_threadsafe(_end, [x for x in waiters if x.get_loop() is loop])


def _end(waiters):
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class _ShapesDiffer(ServingError):
    """Requests of a batch cannot be joined: all of them fail, as in the real server."""


class BatchingServable:
    """Servable that runs requests for the same tensors in one call, like a batching session.

    A request is batched if the first axis of every input and output is free and all inputs have the
    same number of rows. The real server refuses other requests; here they run alone, and the log
    says so once. A batch that fails is run again request by request, so that only the requests at
    fault fail. So is one that padding would make larger than the `Limits` of a request.
    """

    def __init__(self, servable, scheduler, options, limits=Limits()):
        self.name, self.version = servable.name, servable.version
        self.signatures = servable.signatures
        self._servable, self._scheduler, self._options = servable, scheduler, options
        self._limits = limits
        self._unbatched = set()  # keys whose inputs or outputs have no rows
        self._shapes = {  # a tuple of sizes by tensor name, None for what is free
            info.name: _sizes(info.tensor_shape)
            for signature in self.signatures.values()
            for info in [*signature.inputs.values(), *signature.outputs.values()]
        }

    def run(self, feeds, fetches, request_context=None):
        """Run the graph like `Servable.run`, together with other requests where possible."""
        request_context = request_context or RequestContext()
        with self._queued(feeds, fetches, request_context) as tasks:
            outputs = _merge([task.result(task.seconds()) for task in tasks])
        return self._servable.run(feeds, fetches, request_context) if outputs is None else outputs

    async def run_in_batch(self, feeds, fetches, request_context):
        """Await the outputs of `run` on the event loop; return None if the request must run alone.

        No thread waits for them.
        """
        loop = asyncio.get_running_loop()
        with self._queued(feeds, fetches, request_context, loop) as tasks:
            return _merge([await task.wait() for task in tasks])

    @contextlib.contextmanager
    def _queued(self, feeds, fetches, request_context, loop=None):
        """Yield the tasks of a request in the queue, or none if it must run alone."""
        key = (id(self), frozenset(feeds), tuple(fetches))
        size = self._rows(feeds, fetches, key)
        if not size:
            yield []
            return
        request_context.remaining()  # A cancelled request takes no place in the queue.
        tasks = [_Task(piece, request_context, loop) for piece in self._split(feeds, size)]
        self._scheduler.submit(key, tasks, lambda batch: self._run(batch, key), self._options)
        for task in tasks:
            request_context.on_cancel(task.cancel)
        try:
            yield tasks
        finally:  # The first error ends the request, and nobody waits for its other parts.
            for task in tasks:
                request_context.forget(task.cancel)
                task.cancel()

    def close(self):
        """Free the model's memory."""
        self._servable.close()

    def _rows(self, feeds, fetches, key):
        """Return the rows of a request, or None if it must run alone."""
        for name in (*feeds, *fetches):
            sizes = self._shapes[name]
            if sizes is not None and (not sizes or sizes[0] is not None):
                self._explain(key, f"{name} has the shape {tf.TensorShape(sizes)}")
        shapes = {name: np.shape(array) for name, array in feeds.items()}
        rows = {shape[:1] for shape in shapes.values()}
        fits = all(_fits(shape, self._shapes[name]) for name, shape in shapes.items())
        if key in self._unbatched or len(rows) != 1 or rows == {()} or not fits:
            return None
        return rows.pop()[0]

    def _explain(self, key, reason):
        if key not in self._unbatched:
            self._unbatched.add(key)
            message = "Requests of %s are not batched, and the real server refuses them: %s"
            _log.warning(message, self.name, reason)

    def _split(self, feeds, size):
        step = self._options.max_execution_batch_size
        if not self._options.enable_large_batch_splitting:
            step = size
        if size <= step:
            return [feeds]
        return [
            {name: array[start : start + step] for name, array in feeds.items()}
            for start in range(0, size, step)
        ]

    def _run(self, tasks, key):
        """Complete every task of a batch; runs on a thread of the scheduler."""
        options, fetches = self._options, list(key[-1])
        tasks = [task for task in tasks if task.future.set_running_or_notify_cancel()]
        now = time.monotonic()
        waits = [1e6 * (now - task.start) for task in tasks]
        QUEUING_LATENCY.observe(waits, options.thread_pool_name)
        if options.pad_variable_length_inputs:
            tasks = _paddable(tasks)
        if not tasks:
            return
        try:
            answers = self._run_together(tasks, fetches, key)
        except _ShapesDiffer as error:
            for task in tasks:
                task.fail(error)
            return
        except Exception:  # The requests at fault show when each runs alone.
            _log.debug("A batch of %s failed; its requests run alone", self.name, exc_info=True)
            answers = None
        if answers:
            for task, answer in zip(tasks, answers):
                task.future.set_result(answer)
            _wake(tasks)
            return
        for task in tasks:
            try:
                answer = self._servable.run(task.feeds, fetches, task.request_context)
                task.future.set_result(answer)
                _wake([task])
            except Exception as error:  # Raised again where the request waits.
                task.fail(error)

    def _run_together(self, tasks, fetches, key):
        """Return the outputs of each task by one run; None if the outputs have other rows."""
        sizes, requests = [task.size for task in tasks], [task.feeds for task in tasks]
        # The smallest allowed batch that holds them.
        allowed = self._options.allowed_batch_sizes
        total = next((n for n in allowed if n >= sum(sizes)), sum(sizes))
        if self._options.pad_variable_length_inputs:
            requests = _pad(requests, total, self._limits)
        feeds = _join(requests, total)
        WRAPPED_RUNS.add()
        BATCH_SIZE.observe([total])
        outputs = self._servable.run(feeds, fetches, _latest(tasks))
        answers = _split_outputs(outputs, sizes, total)
        if answers is None:
            self._explain(key, f"not all of {', '.join(fetches)} have a row per input row")
        return answers


def _sizes(shape_proto):
    shape = tf.TensorShape(shape_proto)
    return None if shape.rank is None else tuple(shape.as_list())


def _fits(shape, sizes):
    """Return True if an array of a shape may be fed to a tensor of the `sizes` of a signature."""
    if sizes is None:
        return True
    return len(shape) == len(sizes) and all(n in (None, m) for m, n in zip(shape, sizes))


def _paddable(tasks):
    """Return the tasks whose tensors can be padded to one shape; the others fail."""
    shapes = _common_shapes([task.feeds for task in tasks])
    batch_tasks = []
    for task in tasks:
        try:
            for name, array in task.feeds.items():
                known = array.ndim == len(shapes[name]) and array.ndim <= _MAX_PADDED_RANK
                require(known, "Only tensors with rank from 1 to 6 can be padded.")
                has_values = array.size or array.shape[1:] == shapes[name][1:]
                require(has_values, "Got empty tensor in batch of non-empty tensors.")
            batch_tasks.append(task)
        except ServingError as error:
            task.fail(error)
    return batch_tasks


def _common_shapes(requests):
    """Return the largest size of each axis, by the names of the tensors."""
    shapes = {name: [feeds[name].shape for feeds in requests] for name in next(iter(requests), ())}
    return {name: tuple(max(sizes) for sizes in zip(*each)) for name, each in shapes.items()}


def _pad(requests, total, limits):
    """Pad to a common shape with each tensor's own first element, unless that is too large."""
    shapes = {name: shape[1:] for name, shape in _common_shapes(requests).items()}
    for name, shape in shapes.items():
        arrays = [feeds[name] for feeds in requests]
        if any(array.shape[1:] != shape for array in arrays):
            limits.check_shape(name, [total, *shape], tf.as_dtype(arrays[0].dtype))
    return [{name: _pad_to(shapes[name], x) for name, x in feeds.items()} for feeds in requests]


def _pad_to(shape, array):
    if shape == array.shape[1:]:
        return array
    padded = np.full((len(array), *shape), array.flat[0], array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def _latest(tasks):
    """Return the `RequestContext` of a batch, with the latest deadline of its tasks."""
    context, deadlines = RequestContext(), [task.request_context.deadline for task in tasks]
    context.deadline = None if None in deadlines else max(deadlines)
    return context


def _join(requests, size):
    """Concatenate the tensors of requests, and fill them up to `size` rows.

    The filling is the first row of the last request, which is a valid row.
    """
    joined = {}
    for name, first in requests[0].items():
        arrays = [feeds[name] for feeds in requests]
        if any(array.shape[1:] != first.shape[1:] for array in arrays):
            message = (
                f"Tensors with name '{name}' from different tasks have different shapes and "
                "padding is turned off. Set pad_variable_length_inputs to true, or ensure that all "
                "tensors with the same name have equal dimensions starting with the first dim."
            )
            raise _ShapesDiffer(Code.FAILED_PRECONDITION, message)
        missing = size - sum(map(len, arrays))
        joined[name] = np.concatenate([*arrays, *[arrays[-1][:1]] * missing])
    return joined


def _merge(answers):
    """Return the outputs of a request from those of its parts; None if they cannot be joined."""
    outputs = list(zip(*answers))
    if any(part.shape[1:] != parts[0].shape[1:] for parts in outputs for part in parts):
        return None  # An output may be as wide as the longest of its rows.
    return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in outputs] or None


def _split_outputs(outputs, sizes, total):
    """Return the outputs of each request; None if an output's first axis is not the rows'."""
    if any(np.ndim(output) == 0 or len(output) != total for output in outputs):
        return None
    parts = [np.split(output, np.cumsum(sizes))[:-1] for output in outputs]
    return list(zip(*parts))
