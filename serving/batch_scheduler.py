"""Collects tasks into batches and runs these on a pool of threads."""

import collections
import dataclasses
import logging
import threading
import time

from serving.errors import Code, ServingError, invalid_argument

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Batch:
    run: object
    due: float
    tasks: list = dataclasses.field(default_factory=list)
    size: int = 0

    def add(self, task):
        self.tasks.append(task)
        self.size += task.size


class BatchScheduler:
    """A queue per key and threads that they share, as TensorFlow's `SharedBatchScheduler`.

    A batch runs as soon as a thread is free and the batch is full or its first task has waited
    long enough. Queues take turns.

    Args:
        options: `BatchingOptions`.
    """

    def __init__(self, options):
        self._options = options
        self._full = options.max_execution_batch_size
        self._patience = options.batch_timeout_micros / 1e6
        self._queues = {}  # key -> deque of batches, never empty; tasks join the last one
        self._changed = threading.Condition()
        for index in range(options.num_batch_threads):
            name = f"{options.thread_pool_name}-{index}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, key, tasks, run):
        """Queues the tasks of one request; all of them or none.

        Args:
            key: hashable. Tasks of one key may share a batch.
            tasks: list of objects with a `size`, none greater than a batch.
            run: function of a list of tasks that settles each of them and does not raise.

        Raises:
            ServingError: if the request is too large or the queue is full.
        """
        size, limit = sum(task.size for task in tasks), self._options.max_batch_size
        if size > limit:
            raise invalid_argument(
                f"Task size {size} is larger than maximum input batch size {limit}"
            )
        with self._changed:
            batches = self._queues.get(key) or collections.deque()
            self._check_room(batches, size)
            self._queues[key] = batches
            for task in tasks:
                if not batches or batches[-1].size + task.size > self._full:
                    batches.append(_Batch(run, time.monotonic() + self._patience))
                batches[-1].add(task)
            # Each thread sleeps until the batches that it knows of are due.
            self._changed.notify_all()

    def _check_room(self, batches, size):
        count, most = max(len(batches), 1), self._options.max_enqueued_batches
        free = self._full - (batches[-1].size if batches else 0)
        if self._options.enable_large_batch_splitting:
            free += max(most - count, 0) * self._full
        elif count < most:
            return
        if size > free:
            raise ServingError(
                Code.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted is full; currently "
                f"{count} batches enqueued and max_enqueued_batches is {most}",
            )

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
                    if len(batches) > 1 or first.size >= self._full or first.due <= now:
                        batches.popleft()
                        del self._queues[key]
                        if batches:  # again, behind the others
                            self._queues[key] = batches
                        return first
                    soonest = first.due if soonest is None else min(soonest, first.due)
                self._changed.wait(None if soonest is None else soonest - now)
