"""Batches of tasks, run on a pool of threads."""

import collections
import dataclasses
import logging
import threading
import time

from .errors import Code, ServingError, require

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Batch:
    run: object
    due: float
    full: int
    tasks: list = dataclasses.field(default_factory=list)
    size: int = 0  # of all tasks together


class BatchScheduler:
    """A queue per key, and threads that they share, as in TensorFlow's `SharedBatchScheduler`.

    A batch runs as soon as a thread is free and the batch is full or its first task has waited
    long enough. Queues take turns. `BatchingOptions` set the threads; their other values may differ
    from queue to queue.
    """

    def __init__(self, options):
        self.options = options
        self._queues = {}  # key -> deque of batches, never empty; tasks join the last one
        self._changed = threading.Condition()
        for index in range(options.num_batch_threads):
            name = f"{options.thread_pool_name}-{index}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, key, tasks, run, options):
        """Queue the tasks of one request, all of them or none.

        Tasks of one hashable `key` have the same `options` and may share a batch; `run` completes
        each task of a list. A task has a `size`, at most that of a batch.
        """
        size, limit = sum(task.size for task in tasks), options.max_batch_size
        message = f"Task size {size} is larger than maximum input batch size {limit}"
        require(size <= limit, message)
        full = options.max_execution_batch_size
        with self._changed:
            batches = self._queues.get(key) or collections.deque()
            _check_room(batches, size, options)
            self._queues[key] = batches
            for task in tasks:
                if not batches or batches[-1].size + task.size > full:
                    due = time.monotonic() + options.batch_timeout_micros / 1e6
                    batches.append(_Batch(run, due, full))
                batches[-1].tasks.append(task)
                batches[-1].size += task.size
            # A sleeping thread knows only when earlier batches are due.
            self._changed.notify_all()

    def _work(self):
        while True:
            batch = self._take()
            try:
                batch.run(batch.tasks)
            except Exception:  # The thread has other batches to run.
                _log.exception("A batch failed")

    def _take(self):
        with self._changed:
            while True:
                now, soonest = time.monotonic(), None
                for key, batches in self._queues.items():
                    first = batches[0]
                    if len(batches) > 1 or first.size >= first.full or first.due <= now:
                        batches.popleft()
                        del self._queues[key]
                        if batches:  # again, behind the others
                            self._queues[key] = batches
                        return first
                    soonest = first.due if soonest is None else min(soonest, first.due)
                seconds = None if soonest is None else min(soonest - now, threading.TIMEOUT_MAX)
                self._changed.wait(seconds)


def _check_room(batches, size, options):
    count, most = max(len(batches), 1), options.max_enqueued_batches
    full = options.max_execution_batch_size
    free = full - (batches[-1].size if batches else 0)
    if options.enable_large_batch_splitting:
        free += max(most - count, 0) * full
    elif count < most:
        return
    if size > free:
        state = f"currently {count} batches enqueued and max_enqueued_batches is {most}"
        message = f"The batch scheduling queue to which this task was submitted is full; {state}"
        raise ServingError(Code.UNAVAILABLE, message)
