"""Servable whose requests run in batches."""

import concurrent.futures
import dataclasses
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


@dataclasses.dataclass
class _Task:
    """Request, or a part of one, in a queue."""

    feeds: dict
    request_context: RequestContext
    future: concurrent.futures.Future = dataclasses.field(default_factory=concurrent.futures.Future)
    start: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def size(self):
        return len(next(iter(self.feeds.values())))


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
        try:
            answers = [_await(task) for task in tasks]
        finally:  # The first error ends the request, and nobody waits for its other parts.
            for task in tasks:
                request_context.forget(task.future.cancel)
                task.future.cancel()
        outputs = list(zip(*answers))
        if any(part.shape[1:] != parts[0].shape[1:] for parts in outputs for part in parts):
            # An output may be as wide as the longest of its rows.
            return self._servable.run(feeds, fetches, request_context)
        return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in outputs]

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
        latency = QUEUING_LATENCY.labels(options.thread_pool_name)
        for task in tasks:
            latency.observe(1e6 * (time.monotonic() - task.start))
        if options.pad_variable_length_inputs:
            tasks = _paddable(tasks)
        if not tasks:
            return
        answers = None
        try:
            answers = self._run_together(tasks, fetches, key)
        except _ShapesDiffer as error:
            for task in tasks:
                task.future.set_exception(error)
            return
        except Exception:  # The requests at fault show when each runs alone.
            _log.debug("A batch of %s failed; its requests run alone", self.name, exc_info=True)
        for task, answer in zip(tasks, answers or [None] * len(tasks)):
            try:
                if answer is None:
                    answer = self._servable.run(task.feeds, fetches, task.request_context)
                task.future.set_result(answer)
            except Exception as error:  # Raised again where the request waits.
                task.future.set_exception(error)

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
        BATCH_SIZE.observe(total)
        outputs = self._servable.run(feeds, fetches, _latest(tasks))
        answers = _split_outputs(outputs, sizes, total)
        if answers is None:
            self._explain(key, f"not all of {', '.join(fetches)} have a row per input row")
        return answers


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
            task.future.set_exception(error)
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
            raise _ShapesDiffer(Code.FAILED_PRECONDITION, message)
        missing = size - sum(map(len, arrays))
        joined[name] = np.concatenate([*arrays, *[arrays[-1][:1]] * missing])
    return joined


def _split_outputs(outputs, sizes, total):
    """Return the outputs of each request; None if an output's first axis is not the rows'."""
    if any(np.ndim(output) == 0 or len(output) != total for output in outputs):
        return None
    parts = [np.split(output, np.cumsum(sizes))[:-1] for output in outputs]
    return list(zip(*parts))
