"""Numbered checkpoint files of a run that may be killed at any moment."""

import contextlib
import json
import os
import re

from keras_attn.callbacks.training_state import StoredState, index_of, write_arrays
from keras_attn.files import PARTIAL, atomic_file, partial_path

STEM = "checkpoint-{:08d}"
EARLIER = "resume.npz"  # the file of earlier versions, which kept only one checkpoint


def files_with(path):
    """Return the paths of the files of a checkpoint one of whose files has the `path`."""
    folder, name = os.path.split(os.fspath(path))
    match = re.fullmatch(r"(.*-shard-)(\d+)-of-(\d+)\.npz", name)
    if not match:
        return [path]
    names = [f"{match[1]}{shard}-of-{match[3]}.npz" for shard in range(int(match[3]))]
    return [os.path.join(folder, name) for name in names]


class Checkpoints:
    """Numbered files in one directory, each complete or absent.

    Several workers share the directory, and each writes a file of its own for every number:

        checkpoint-00000007.npz                  the state of one worker
        checkpoint-00000007-worker-1-of-2.npz    the state of each worker
        checkpoint-00000007-shard-1-of-2.npz     its part of the state of all workers
        checkpoint-00000007-of-2.json            the manifest, written last: the files' sizes

    A checkpoint is valid when all workers have written their file of that number, so workers that
    were killed at different moments resume from the same one without communication. A worker
    removes a file only when all workers have `keep` later ones, so a valid one always exists. The
    manifest is written by the worker that finds all files there: a file that is missing although
    there is a manifest has been lost, one without a manifest was never written.

    Shards and the state of one worker are read by any number of workers that share state; the
    states of several workers only by as many. The directory need not exist.

    Args:
        directory: str.
        worker, workers: int. The index of this worker and their number.
        kind: str. "worker", or "shard" if the workers hold parts of one state.
        stem: str. Format of a checkpoint's name without its ending.

    Raises:
        ValueError: if the directory holds checkpoints that this number of workers cannot restore.
    """

    def __init__(self, directory, worker=0, workers=1, kind="worker", stem=STEM):
        self.directory = directory
        self.worker, self.workers, self.kind = worker, workers, kind
        self._stem, self._earlier = stem, EARLIER if stem == STEM else None
        number = re.escape(stem.partition("{")[0]) + r"(?P<number>\d+)"
        suffix = r"-(?P<kind>worker|shard)-(?P<worker>\d+)-of-(?P<of>\d+)"
        self._file_name = re.compile(rf"{number}(?:{suffix})?\.npz")
        self._manifest_name = re.compile(rf"{number}-of-\d+(?:-by-(?P<worker>\d+))?\.json")
        for _, _, kind, _, of in self._files():
            is_global = (kind == "shard" or of == 1) and (self.kind == "shard" or workers == 1)
            if (of, kind) != (workers, self.kind) and not is_global:
                raise ValueError(
                    f"The checkpoints in {directory} were saved by {of} workers, which only as "
                    "many on the same backend can restore; resume with these, or give another "
                    f"directory. Received: {workers} workers"
                )

    def path(self, number):
        """Return the path of this worker's file."""
        return self._path(number, self.worker, self.workers, self.kind)

    def numbers(self):
        """Return the numbers that all workers have written, ascending."""
        return sorted(number for number, _, _ in self._complete())

    def newest(self):
        """Return the newest number that all workers have written; None without one.

        A file of a later checkpoint that has been lost raises an error.
        """
        newest = max(self.numbers(), default=None)
        for name in self._names():
            match = self._manifest_name.fullmatch(name)
            if match and not match["worker"] and int(match["number"]) >= (newest or 0):
                self._check_manifest(int(match["number"]), name)
        return newest

    def readable(self):
        """Return the numbers whose state this worker can read, ascending."""
        if self.kind == "shard" or self.workers == 1:
            return self.numbers()
        # Another worker may not have written its own yet.
        own = (self.worker, self.workers)
        return sorted(n for _, n, _, worker, of in self._files() if (worker, of) == own)

    def read_paths(self, number):
        """Return the paths of the files that hold the state of this worker, the first its own."""
        sets = [(of, kind) for n, of, kind in self._complete() if n == number]
        of, kind = max(sets, default=(self.workers, self.kind))
        paths = self._paths(number, of, kind)
        own = paths.pop(self.worker if of == self.workers else 0)
        return [own, *(paths if kind == "shard" else ())]

    def read(self, number):
        """Return the `StoredState` of a number, which the caller closes.

        It is the state of all workers, or of this one if the workers have states of their own.
        """
        paths, manifest = self.read_paths(number), self._manifest_of(number)
        also = "" if manifest is None else f" and {os.path.basename(manifest)}"
        return StoredState(paths, f"delete it{also} to {self._before(number)}")

    def prepare(self, newest):
        """Make the directory, remove leftovers of killed processes, and check that it is writable.

        Training resumes from the number `newest`. Later files, which not every worker has, are
        removed: new ones will take their numbers.
        """
        with self._explain_failure("begin"):
            os.makedirs(self.directory, exist_ok=True)
            self._remove_partial()
            self.remove(lambda number: number > newest)
            attempt = partial_path(self.path(newest + 1))
            with open(attempt, "wb"):
                pass
            os.remove(attempt)

    def write(self, number, values, keep=None, **numbers):
        """Write this worker's file, then remove those before the `keep` newest.

        `values` is a list of (shape, parts) of each variable, as `index_of` takes it.
        """
        path = self.path(number)
        with self._explain_failure(f"write {os.path.basename(path)}"):
            arrays, index = index_of(values)
            is_part = self.kind == "shard" and self.workers > 1
            write_arrays(path, arrays, index if is_part else None, **numbers)
            if self.workers > 1 and (number, self.workers, self.kind) in self._complete():
                self._write_manifest(number)
            if keep is not None:
                kept = self.numbers()[-keep:]
                self.remove(lambda other: kept and other < kept[0])

    def remove(self, is_old):
        """Remove this worker's files of the numbers for which `is_old(number)` is true.

        Files of workers that are no longer there fall to those that are.
        """
        for name, number, _, worker, of in list(self._files()):
            if is_old(number) and worker % self.workers == self.worker:
                # The manifest first, by whoever comes first: without it no file need be there.
                for path in (self._manifest(number, of), os.path.join(self.directory, name)):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(path)

    def _remove_partial(self):
        for name in self._names():
            whole = name.replace(PARTIAL, "")
            manifest = self._manifest_name.fullmatch(whole)
            match = self._file_name.fullmatch(whole) or manifest
            is_left = PARTIAL in name or manifest and manifest["worker"]
            if is_left and match and int(match["worker"] or 0) % self.workers == self.worker:
                os.remove(os.path.join(self.directory, name))

    def _write_manifest(self, number):
        sizes = {
            os.path.basename(path): os.path.getsize(path)
            for path in self._paths(number, self.workers, self.kind)
        }
        # Two workers may write it at once, each under a name of its own.
        own = self._manifest(number, self.workers).replace(".json", f"-by-{self.worker}.json")
        with atomic_file(own) as temporary, open(temporary, "w", encoding="utf-8") as file:
            json.dump(sizes, file)
        os.replace(own, self._manifest(number, self.workers))

    def _check_manifest(self, number, name):
        """Raise an error if a file that the manifest `name` lists is missing or cut."""
        path = os.path.join(self.directory, name)
        remedy = f"restore it from a copy, or delete {name} to {self._before(number)}"
        try:
            with open(path, encoding="utf-8") as file:
                sizes = dict(json.load(file))
        except (ValueError, TypeError) as error:
            raise ValueError(f"The file {path} is damaged; {remedy}. Received: {error}") from error
        for name, size in sizes.items():
            path = os.path.join(self.directory, name)
            actual = os.path.getsize(path) if os.path.exists(path) else None
            if actual != size:
                what = "is missing" if actual is None else "is cut or was replaced"
                raise ValueError(
                    f"The file {path} {what}; {remedy}. Received: {actual or 'no'} bytes of {size}"
                )

    def _before(self, number):
        """Return what a run does without the checkpoint of a number."""
        numbers = [n for n in self.numbers() if n < number]
        if not numbers:
            return "start from the beginning"
        return f"resume from {self.read_paths(numbers[-1])[0]}"

    def _manifest_of(self, number):
        path = self._manifest(
            number, max((of for n, of, _ in self._complete() if n == number), default=1)
        )
        return path if os.path.exists(path) else None

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

    def _path(self, number, worker, of, kind):
        suffix = f"-{kind}-{worker}-of-{of}" if of > 1 else ""
        name = f"{self._stem.format(number)}{suffix}.npz"
        is_earlier = number == 0 and self._earlier is not None
        return os.path.join(self.directory, self._earlier if is_earlier else name)

    def _paths(self, number, of, kind):
        return [self._path(number, worker, of, kind) for worker in range(of)]

    def _manifest(self, number, of):
        return os.path.join(self.directory, f"{self._stem.format(number)}-of-{of}.json")

    def _complete(self):
        """Return the set of (number, workers, kind) whose files are all there."""
        files = {}
        for _, number, kind, worker, of in self._files():
            files.setdefault((number, of, kind), set()).add(worker)
        return {key for key, workers in files.items() if len(workers) == key[1]}

    def _files(self):
        """Yield (name, number, kind, worker, workers) of all files."""
        for name in self._names():
            if match := self._file_name.fullmatch(name):
                worker, of = int(match["worker"] or 0), int(match["of"] or 1)
                yield name, int(match["number"]), match["kind"] or self.kind, worker, of
            elif name == self._earlier:
                yield name, 0, self.kind, 0, 1

    def _names(self):
        return os.listdir(self.directory) if os.path.isdir(self.directory) else []
