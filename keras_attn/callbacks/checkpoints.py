"""Numbered checkpoint files of a run that may be killed at any moment."""

import contextlib
import os
import re

from keras_attn.callbacks.npz import read_arrays, write_arrays
from keras_attn.distribution.workers import worker_suffix
from keras_attn.ops.atomic_files import PARTIAL, partial_path

FILE_NAME = re.compile(r"checkpoint-(\d+)(?:-worker-(\d+)-of-(\d+))?\.npz")
EARLIER = "resume.npz"  # the file of earlier versions, which kept only one checkpoint


class Checkpoints:
    """Numbered files in one directory, each complete or absent.

    Several workers share the directory, and each writes a file of its own for every number:

        checkpoint-00000007.npz            one worker
        checkpoint-00000007-worker-1-of-2.npz

    A checkpoint is valid when all workers have written their file of that number, so workers that
    were killed at different moments resume from the same one without communication. A worker
    removes a file only when all workers have `keep` later ones, so a valid one always exists.

    The directory need not exist. Checkpoints in it of another number of workers raise an error.
    """

    def __init__(self, directory, worker=0, workers=1):
        self.directory = directory
        self.worker, self.workers = worker, workers
        for _, _, of in self._files():
            if of != workers:
                raise ValueError(
                    f"The checkpoints in {directory} were saved by {of} workers and cannot be "
                    "restored by another number; use as many workers, or give another directory. "
                    f"Received: {workers} workers"
                )

    def path(self, number):
        """Return the path of this worker's file."""
        name = f"checkpoint-{number:08d}{worker_suffix(self.worker, self.workers)}.npz"
        return os.path.join(self.directory, name if number else EARLIER)

    def numbers(self):
        """Return the numbers that all workers have written, ascending."""
        written = {}
        for number, worker, _ in self._files():
            written.setdefault(number, set()).add(worker)
        return sorted(n for n, workers in written.items() if len(workers) == self.workers)

    def read(self, number):
        """Return the arrays and named integers that this worker wrote."""
        before = [n for n in self.numbers() if n < number]
        start = f"resume from {self.path(before[-1])}" if before else "start from the beginning"
        return read_arrays(self.path(number), remedy=f"delete it to {start}")

    def prepare(self, newest):
        """Make the directory, remove leftovers of killed processes, and check that it is writable.

        Training resumes from the number `newest`. Later files of this worker, which not every other
        worker has, are removed: new ones will take their numbers.
        """
        with self._explain_failure("begin"):
            os.makedirs(self.directory, exist_ok=True)
            for name in os.listdir(self.directory):
                found = FILE_NAME.fullmatch(name.replace(PARTIAL, ""))
                if not found or int(found[2] or 0) != self.worker:
                    continue
                if PARTIAL in name or int(found[1]) > newest:
                    os.remove(os.path.join(self.directory, name))
            attempt = partial_path(self.path(newest + 1))
            with open(attempt, "wb"):
                pass
            os.remove(attempt)

    def write(self, number, arrays, keep, **values):
        """Write this worker's file, then remove those before the `keep` newest."""
        with self._explain_failure(f"write {os.path.basename(self.path(number))}"):
            write_arrays(self.path(number), arrays, **values)
            kept = self.numbers()[-keep:]
            for other, worker, _ in self._files():
                if worker == self.worker and kept and other < kept[0]:
                    os.remove(self.path(other))

    @contextlib.contextmanager
    def _explain_failure(self, action):
        try:
            yield
        except OSError as error:
            sentence = (
                f"Cannot {action} in the checkpoint directory {self.directory}: "
                f"{error.strerror or error}; earlier checkpoints are kept"
            )
            raise OSError(*filter(None, (error.errno, sentence))) from error

    def _files(self):
        """Yield (number, worker, workers) of all files."""
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        for found in filter(None, map(FILE_NAME.fullmatch, names)):
            yield int(found[1]), int(found[2] or 0), int(found[3] or 1)
        if EARLIER in names:
            yield 0, 0, 1
