"""The files of a run that may be killed at any moment, on one machine or on several."""

import contextlib
import os
import re

from keras_attn.callbacks.npz import read_arrays, write_arrays
from keras_attn.distribution.workers import suffix_of
from keras_attn.ops.atomic_files import PARTIAL, partial_path

FILE_NAME = re.compile(r"checkpoint-(\d+)(?:-worker-(\d+)-of-(\d+))?\.npz")
EARLIER = "resume.npz"  # the one file of versions that kept only one


class Checkpoints:
    """Numbered files in one directory, each written whole or not at all.

    Several workers share the directory, and each writes a file of its own for every number:

        checkpoint-00000007.npz            one worker
        checkpoint-00000007-worker-1-of-2.npz

    A number counts where all workers have written theirs, so that workers that were killed at
    different moments go on from the same one without talking. Since a worker removes a file only
    when all have `keep` later ones, there is one.

    Args:
        directory: str. Need not exist.
        worker, workers: int. Which worker this is, of how many.

    Raises:
        ValueError: if the directory holds checkpoints of another number of workers.
    """

    def __init__(self, directory, worker=0, workers=1):
        self.directory = directory
        self.worker, self.workers = worker, workers
        for _, _, of in self._files():
            if of != workers:
                raise ValueError(
                    f"The checkpoints in {directory} were saved by {of} workers and cannot be "
                    "restored by another number; go on with as many, or give another directory. "
                    f"Received: {workers} workers"
                )

    def path(self, number):
        """This worker's file."""
        return self._path(number, self.worker)

    def numbers(self):
        """Those that all workers have written, ascending."""
        written = {}
        for number, worker, _ in self._files():
            written.setdefault(number, set()).add(worker)
        return sorted(n for n, workers in written.items() if len(workers) == self.workers)

    def read(self, number):
        """The arrays and named integers that this worker wrote.

        Raises:
            ValueError: if its file is damaged; nothing is removed.
        """
        before = [n for n in self.numbers() if n < number]
        follows = f"go on from {self.path(before[-1])}" if before else "start from the beginning"
        return read_arrays(self.path(number), remedy=f"delete it to {follows}")

    def prepare(self, newest):
        """Makes the directory, removes what killed processes left of this worker's files, and shows
        that it can be written to.

        Args:
            newest: int. The number that training goes on from. Later files of this worker, which
                have no counterpart of every other, would be taken for those that follow.
        """
        with self._told("begin"):
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
        """Writes this worker's file, and then removes those before the `keep` newest."""
        with self._told(f"write {os.path.basename(self.path(number))}"):
            write_arrays(self.path(number), arrays, **values)
            kept = self.numbers()[-keep:]
            for other, worker, _ in self._files():
                if worker == self.worker and kept and other < kept[0]:
                    os.remove(self._path(other, worker))

    @contextlib.contextmanager
    def _told(self, what):
        try:
            yield
        except OSError as error:
            sentence = (
                f"Cannot {what} in the checkpoint directory {self.directory}: "
                f"{error.strerror or error}; what was saved there before is kept"
            )
            raise OSError(*filter(None, (error.errno, sentence))) from error

    def _files(self):
        """(number, worker, workers) of all files."""
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        for found in filter(None, map(FILE_NAME.fullmatch, names)):
            yield int(found[1]), int(found[2] or 0), int(found[3] or 1)
        if EARLIER in names:
            yield 0, 0, 1

    def _path(self, number, worker):
        name = f"checkpoint-{number:08d}{suffix_of(worker, self.workers)}.npz"
        return os.path.join(self.directory, name if number else EARLIER)
