"""Resume training after an interruption."""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import weakref

import keras

from keras_attn.backend.replicas import held_parts, numbers_of_processes, processes_share_state
from keras_attn.callbacks.checkpoints import Checkpoints
from keras_attn.callbacks.deferred_signal import DeferredSignal, Terminated
from keras_attn.callbacks.training_state import (
    assign_all,
    raise_in_all_processes,
    read_stored,
    read_training_variables,
    read_variables,
    shapes_fit,
    sync_jax_state,
    training_variables,
)
from keras_attn.distribution.workers import worker_of
from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_paths, check_sizes

GRACE = 20.0  # seconds; schedulers send SIGKILL 30 seconds or more after SIGTERM
_WRITERS = weakref.WeakSet()


class BackgroundWriter:
    """Run one function at a time in a thread of its own.

    A process that ends normally waits for the thread. `directory` is where the functions write:
    `wait_for_writes` waits for all of a directory.
    """

    def __init__(self, directory):
        self.directory = os.path.realpath(directory)
        self._thread = self._error = None
        _WRITERS.add(self)

    def start(self, function, *arguments, **named):
        """Call a function in the thread, once the one before has ended."""
        self.join()

        def call():
            try:
                function(*arguments, **named)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=call)
        self._thread.start()

    def join(self):
        """Wait for the function, and raise its error."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def check(self):
        """Raise the error of the function if it has ended with one."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def wait_for_writes(directory=None):
    """Wait for the functions that write to a directory, by default to any, and print their errors.

    For training that another error has ended: nothing else asks for these then.
    """
    for writer in list(_WRITERS):
        if directory is None or writer.directory == os.path.realpath(directory):
            try:
                writer.join()
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


atexit.register(wait_for_writes)


class Resume(ArgumentHints, keras.callbacks.Callback):
    """Save the whole state of training, and restore it before the next `fit`.

    The state is the model's weights, its random seeds and memories (those of every replica), the
    optimizer with its step, the metrics so far, and the position in the data; so a run that was
    killed ends with the weights of one that was not. It is saved at the end of each epoch, every
    `every_steps` batches within it, and on SIGTERM or Ctrl-C: after the batch in progress, and then
    `Terminated` or `KeyboardInterrupt` is raised. After the last batch of an epoch validation comes
    first, unless it takes more than 20 seconds; then the run resumes from the checkpoint before. A
    second signal ends the process at once.

    **Files.** Each checkpoint is a file of its own, renamed when it is complete. The `keep` newest
    stay; on disk they take `keep` + 1 times the state. A step waits for the copy of the state only:
    a thread writes the copy while training continues, so the memory of the host holds it too. The
    thread ends before the next checkpoint, before the end of training, and before a signal's
    exception. A directory that is not writable raises `OSError` before training starts, a full disk
    after the batch in which it occurs; earlier checkpoints stay.

    **Several processes** share the directory, and resume from the newest checkpoint that all of
    them have written, at whichever batches they ended; a manifest with the sizes of all files is
    written last. On JAX each process writes the parts of the state that it holds, each part once,
    and any number of processes on any mesh resumes from them, one device too; random numbers and
    memories are those of the whole batch, so the result is that of a run that never stopped, but
    for rounding. On TensorFlow each process writes its whole state, and as many must resume.

    To resume within an epoch, train on the rest of it by a `fit` of its own, because Keras counts
    an epoch's batches once; the metrics that it logs are those of the whole epoch:

        epoch, batch = resume.restore(model)
        if batch:
            model.fit(data(epoch, first=batch), initial_epoch=epoch, epochs=epoch + 1,
                callbacks=[WithoutTrainEnd(others), resume], ...)
            epoch += 1
        model.fit(data(epoch), initial_epoch=epoch, epochs=..., callbacks=[*others, resume], ...)

    Put it last among the callbacks: then the files that others write at the end of an epoch exist
    before that epoch counts as done. A finished run, started again, does not train again.

    `keras.callbacks.BackupAndRestore` (3.15) overwrites its file in place, which a kill leaves
    unreadable; it does not detect changed bytes, does not restore seeds, and knows the epoch only
    inside `fit`, too late for the order of the data to follow it.

    Args:
        directory: str. Directory of the checkpoints, one for each run.
        every_steps: int, optional. Number of batches between two checkpoints within an epoch.
        keep: int. Number of checkpoints that stay.

    Raises:
        ValueError: if `every_steps` or `keep` is not positive; on restoring, if a file of the
            newest checkpoint is missing, damaged or of another model, or if it was written by
            processes that cannot be replaced by these; on training, if the directory has
            checkpoints that were not restored.

    Example:
        >>> import keras, numpy as np, tempfile
        >>> from keras_attn.callbacks import Resume
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> resume = Resume(tempfile.mkdtemp(), every_steps=100)
        >>> resume.restore(model)
        (0, 0)
        >>> history = model.fit(np.eye(4, 1), np.ones(4), epochs=2, verbose=0, callbacks=[resume])
        >>> resume.restore(model)
        (2, 0)
    """

    def __init__(self, directory, every_steps=None, keep=2):
        super().__init__()
        check_paths(directory=directory)
        check_sizes(keep=keep)
        if every_steps is not None:
            check_sizes(every_steps=every_steps)
        self.directory, self.every_steps, self.keep = directory, every_steps, keep
        self._sigterm, self._sigint = DeferredSignal(signal.SIGTERM), DeferredSignal(signal.SIGINT)
        self._checkpoints, self._writer = None, BackgroundWriter(directory)
        self._number = None  # of the newest checkpoint that was restored or saved
        self._epoch = self._first = self._saved_at = 0
        # A restored position within an epoch, until `fit` begins that epoch: the epoch, the batches
        # done, the values of the model's non-trainable variables, and the metrics.
        self._begun = None
        self._metrics = None  # restored values whose variables do not exist yet

    def restore(self, model):
        """Restore `model`, built and compiled, from the newest checkpoint.

        Returns:
            (epoch, batch): the epoch at which `fit` resumes, and the number of its batches that are
            done. That is all of them only if Keras does not know their number and the process was
            killed before the end of the epoch was saved. Without a checkpoint both are 0 and the
            model is unchanged.
        """
        with raise_in_all_processes():
            self._open(model)
            number = self._checkpoints.newest()
        number = self._agreed(number)
        self._number, self._begun = 0 if number is None else None, None
        if number is None:
            return 0, 0
        variables = training_variables(model)
        with raise_in_all_processes(), self._checkpoints.read(number) as state:
            metrics = state.numbers.get("metrics", 0)
            count = len(state.shapes) - metrics
            if not shapes_fit(variables, state.shapes[:count]) or "epoch" not in state.numbers:
                raise ValueError(
                    f"The file {self._checkpoints.path(number)} was saved by another model or "
                    "optimizer, or under more or fewer replicas; give another directory, or "
                    f"delete its checkpoints to start from the beginning. Received: {count} arrays "
                    f"for {len(variables)} variables, or of other shapes"
                )
            values = read_stored(variables, state)
            metrics = [state.read(count + index) for index in range(metrics)]
        assign_all(variables, values)
        self._number = number
        epoch, batch = state.numbers["epoch"], state.numbers.get("batch", 0)
        if batch:
            kept = [held_parts(variable) for variable in model.non_trainable_variables]
            self._begun = epoch, batch, kept, metrics
        return epoch, batch

    def initial_epoch(self, model):
        """Restore `model` and return the epoch only, which is then repeated from its beginning.

        For data that cannot begin in the middle of an epoch.
        """
        epoch, _ = self.restore(model)
        self._begun = None
        return epoch

    def on_train_begin(self, logs=None):
        with raise_in_all_processes():
            if self._checkpoints is None:
                self._open(self.model)
            if self._number is None:
                numbers = self._checkpoints.numbers()
                if numbers:
                    raise ValueError(
                        f"The directory {self.directory} has checkpoints, which training would "
                        "replace; call `restore` before `fit`, or give another directory. "
                        f"Received: {self._checkpoints.path(numbers[-1])}"
                    )
                self._number = 0
            self._checkpoints.prepare(self._number)
        self._sigterm.watch()
        self._sigint.watch()

    def on_train_end(self, logs=None):
        self._stop_watching()
        self._writer.join()
        self._raise_if_signalled()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._first, self._metrics = epoch, 0, None
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == epoch:
            _, self._first, kept, self._metrics = begun
            # Keras has reset the metrics, and a model its memory.
            assign_all(self.model.non_trainable_variables, kept)
            if self._metrics_fit():
                assign_all(self.model.metrics_variables, [{None: m} for m in self._metrics])
                self._metrics = None
        self._saved_at = self._first

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics is not None:
            self._add_metrics()
        with self._watching():
            self._writer.check()
        # With steps_per_execution > 1 Keras calls this once for several batches.
        done = self._first + batch + 1
        steps = self.params.get("steps")
        if steps is not None and batch + 1 >= steps:
            return  # `on_epoch_end` saves it
        due = self.every_steps and done - self._saved_at >= self.every_steps
        if due or self._signalled_at() is not None:
            self._save(self._epoch, done)
            self._saved_at = done
        self._raise_if_signalled()

    def on_test_batch_end(self, batch, logs=None):
        received = self._signalled_at()
        if received is not None and time.monotonic() - received > GRACE:
            self._raise_if_signalled()

    def on_epoch_end(self, epoch, logs=None):
        self._save(epoch + 1, 0)
        self._raise_if_signalled()

    def _stop_watching(self):
        self._sigterm.stop()
        self._sigint.stop()

    def _signalled_at(self):
        """Return the time of the first signal, or None before it."""
        times = {self._sigterm.received, self._sigint.received} - {None}
        return min(times, default=None)

    def _raise_if_signalled(self):
        for watched, error in ((self._sigint, KeyboardInterrupt), (self._sigterm, Terminated)):
            if watched.received is not None:
                self._stop_watching()
                self._writer.join()
                watched.received = None
                raise error

    def _add_metrics(self):
        """Add the restored metrics to those of the first batch; the parts of replicas add up.

        TensorFlow makes the metrics' variables in that batch.
        """
        sync_jax_state(self.model)
        if self._metrics_fit():
            variables = self.model.metrics_variables
            sums = [
                {box: part + value for box, part in held_parts(variable).items()}
                for variable, value in zip(variables, self._metrics)
            ]
            assign_all(variables, sums)
        self._metrics = None

    def _metrics_fit(self):
        return shapes_fit(self.model.metrics_variables, [m.shape for m in self._metrics])

    def _open(self, model):
        wait_for_writes(self.directory)  # of an earlier `fit` that an error has ended
        kind = "shard" if processes_share_state() else "worker"
        self._checkpoints = Checkpoints(self.directory, *worker_of(model), kind)

    def _agreed(self, number):
        """Return the newest checkpoint that all processes see."""
        newest = numbers_of_processes(-1 if number is None else number)
        agreed = None if max(newest) < 0 else min(newest)
        with raise_in_all_processes():
            if agreed is not None and agreed not in self._checkpoints.numbers():
                raise ValueError(
                    "All processes must see the same files, on a disk that they share. Received: "
                    f"directory={str(self.directory)!r}, with newest checkpoints {newest}"
                )
        return agreed

    def _save(self, epoch, batch):
        """Copy the state, and write it while training continues."""
        sync_jax_state(self.model)
        with self._watching():
            self._writer.join()
            values = read_training_variables(self.model)
            metrics = read_variables(self.model.metrics_variables) if batch else []
            self._number += 1
            position = {"epoch": epoch, "batch": batch, "metrics": len(metrics)}
            write, state = self._checkpoints.write, [*values, *metrics]
            self._writer.start(write, self._number, state, self.keep, **position)

    @contextlib.contextmanager
    def _watching(self):
        """Watch signals no longer if the block raises an error, which ends training."""
        try:
            yield
        except BaseException:
            self._stop_watching()
            raise


class WithoutTrainEnd(keras.callbacks.CallbackList):
    """Pass all events to callbacks but the end of training.

    Use it for the `fit` on the rest of an epoch that `Resume` restored: a callback that acts at the
    end of training, such as `AverageCheckpoints`, then acts after the last `fit` only.

    Args:
        callbacks: list of `keras.callbacks.Callback`s.

    Example:
        >>> import keras
        >>> from keras_attn.callbacks import WithoutTrainEnd
        >>> ends = keras.callbacks.LambdaCallback(on_train_end=lambda logs: print("the end"))
        >>> WithoutTrainEnd([ends]).on_train_end()
    """

    def __init__(self, callbacks):
        super().__init__(callbacks)

    def on_train_end(self, logs=None):
        pass
