"""Servable whose requests run in batches."""

import concurrent.futures
import dataclasses
import logging
import time

import numpy as np
import tensorflow as tf

from .errors import Code, ServingError, require
from .metrics import BATCH_SIZE, QUEUING_LATENCY, WRAPPED_RUNS
from .request_context import RequestContext

_log = logging.getLogger(__name__)

_MAX_PADDED_RANK = 6


@dataclasses.dataclass
class _Task:
    """Request, or a part of one, in a queue."""

    feeds: dict
    request_context: RequestContext
    future: concurrent.futures.Future = dataclasses.field(default_factory=concurrent.futures.Future)

    def __post_init__(self):
        self.padded, self.start = self.feeds, time.monotonic()
        self.size = len(next(iter(self.feeds.values())))


class BatchingServable:
    """Servable that runs requests for the same tensors in one call, like a batching session.

    A request is batched if the first axis of every input and output is free and all inputs have the
    same number of rows. The real server refuses other requests; here they run alone, and the log
    says so once. A batch that fails is run again request by request, so that only the requests at
    fault fail.
    """

    def __init__(self, servable, scheduler, options):
        self.name, self.version = servable.name, servable.version
        self.signatures = servable.signatures
        self._servable, self._scheduler, self._options = servable, scheduler, options
        self._unbatched = set()  # keys whose inputs or outputs have no rows
        self._shapes = {
            info.name: tf.TensorShape(info.tensor_shape)
            for signature in self.signatures.values()
            for info in [*signature.inputs.values(), *signature.outputs.values()]
        }

    def run(self, feeds, fetches, request_context=None):
        """Run the graph like `Servable.run`, together with other requests where possible."""
        request_context = request_context or RequestContext()
        key = (id(self), frozenset(feeds), tuple(fetches))
        size = self._rows(feeds, fetches, key)
        if not size:
            return self._servable.run(feeds, fetches, request_context)
        request_context.remaining()  # A cancelled request takes no place in the queue.
        tasks = [_Task(piece, request_context) for piece in self._split(feeds, size)]
        self._scheduler.submit(key, tasks, lambda batch: self._run(batch, key), self._options)
        for task in tasks:
            request_context.on_cancel(task.future.cancel)
        first, *others = [_await(task) for task in tasks]
        return [np.concatenate(pieces) for pieces in zip(first, *others)] if others else first

    def close(self):
        """Free the model's memory."""
        self._servable.close()

    def _rows(self, feeds, fetches, key):
        """Return the rows of a request, or None if it must run alone."""
        for name in (*feeds, *fetches):
            shape = self._shapes[name]
            if shape.rank == 0 or (shape.rank and shape[0] is not None):
                self._explain(key, f"{name} has the shape {shape}")
        sizes = {np.shape(array)[:1] for array in feeds.values()}
        fits = all(self._shapes[name].is_compatible_with(np.shape(a)) for name, a in feeds.items())
        if key in self._unbatched or len(sizes) != 1 or sizes == {()} or not fits:
            return None
        return sizes.pop()[0]

    def _explain(self, key, reason):
        if key not in self._unbatched:
            self._unbatched.add(key)
            message = "Requests of %s are not batched, and the real server refuses them: %s"
            _log.warning(message, self.name, reason)

    def _split(self, feeds, size):
        step = self._options.max_execution_batch_size
        if not self._options.enable_large_batch_splitting:
            step = size
        return [
            {name: array[start : start + step] for name, array in feeds.items()}
            for start in range(0, size, step)
        ]

    def _run(self, tasks, key):
        """Complete every task of a batch; runs on a thread of the scheduler."""
        options, fetches = self._options, list(key[-1])
        tasks = [task for task in tasks if task.future.set_running_or_notify_cancel()]
        if options.pad_variable_length_inputs and tasks:
            tasks = _pad(tasks)
        if not tasks:
            return
        latency = QUEUING_LATENCY.labels(options.thread_pool_name)
        for task in tasks:
            latency.observe(1e6 * (time.monotonic() - task.start))
        sizes = [task.size for task in tasks]
        # The smallest allowed batch that holds them.
        total = next((n for n in options.allowed_batch_sizes if n >= sum(sizes)), sum(sizes))
        try:
            feeds = _join([task.padded for task in tasks], total)
        except ServingError as error:
            for task in tasks:
                task.future.set_exception(error)
            return
        answers = None
        WRAPPED_RUNS.add()
        BATCH_SIZE.observe(total)
        try:
            outputs = self._servable.run(feeds, fetches, _latest(tasks))
            answers = _split_outputs(outputs, sizes, total)
            if answers is None:
                self._explain(key, f"not all of {', '.join(fetches)} have a row per input row")
        except Exception:  # The requests at fault show when each runs alone.
            _log.debug("A batch of %s failed; its requests run alone", self.name, exc_info=True)
        for task, answer in zip(tasks, answers or [None] * len(tasks)):
            try:
                if answer is None:
                    answer = self._servable.run(task.feeds, fetches, task.request_context)
                task.future.set_result(answer)
            except Exception as error:  # Raised again where the request waits.
                task.future.set_exception(error)


def _pad(tasks):
    """Pad to a common shape with each tensor's own first element.

    A task that cannot be padded fails and leaves the batch.
    """
    shapes = {
        name: [max(sizes) for sizes in zip(*(task.feeds[name].shape for task in tasks))]
        for name in tasks[0].feeds
    }
    padded = []
    for task in tasks:
        try:
            task.padded = {name: _pad_to(shapes[name], x) for name, x in task.feeds.items()}
            padded.append(task)
        except ServingError as error:
            task.future.set_exception(error)
    return padded


def _pad_to(shape, array):
    known = array.ndim == len(shape) and array.ndim <= _MAX_PADDED_RANK
    require(known, "Only tensors with rank from 1 to 6 can be padded.")
    shape = (len(array), *shape[1:])
    if shape == array.shape:
        return array
    require(array.size, "Got empty tensor in batch of non-empty tensors.")
    padded = np.full(shape, array.flat[0], array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def _latest(tasks):
    """Return the `RequestContext` of a batch, with the latest deadline of its tasks."""
    context, deadlines = RequestContext(), [task.request_context.deadline for task in tasks]
    context.deadline = None if None in deadlines else max(deadlines)
    return context


def _await(task):
    deadline = task.request_context.deadline
    try:
        return task.future.result(deadline and max(deadline - time.monotonic(), 0))
    except concurrent.futures.CancelledError as error:
        raise ServingError(Code.CANCELLED, "The client has gone away") from error
    except TimeoutError as error:
        if task.future.cancel():
            message = "Run() timeout exceeded while waiting in batching queue"
            raise ServingError(Code.RESOURCE_EXHAUSTED, message) from error
        raise ServingError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification") from error


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
            raise ServingError(Code.FAILED_PRECONDITION, message)
        missing = size - sum(map(len, arrays))
        joined[name] = np.concatenate([*arrays, *[arrays[-1][:1]] * missing])
    return joined


def _split_outputs(outputs, sizes, total):
    """Return the outputs of each request; None if an output's first axis is not the rows'."""
    if any(np.ndim(output) == 0 or len(output) != total for output in outputs):
        return None
    parts = [np.split(output, np.cumsum(sizes))[:-1] for output in outputs]
    return list(zip(*parts))
