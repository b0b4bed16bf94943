"""Resume training after an interruption."""

import signal
import time

import keras

from keras_attn.callbacks.checkpoints import Checkpoints
from keras_attn.callbacks.deferred_signal import DeferredSignal, Terminated
from keras_attn.callbacks.training_state import (
    assign_variables,
    read_training_variables,
    read_variable,
    sync_jax_state,
    training_variables,
    values_fit,
)
from keras_attn.distribution.workers import worker_of
from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_paths, check_sizes

GRACE = 20.0  # seconds; schedulers send SIGKILL 30 seconds or more after SIGTERM


class Resume(ArgumentHints, keras.callbacks.Callback):
    """Save the whole state of training, and restore it before the next `fit`.

    The state is the model's weights, its random seeds and memories (those of every replica), the
    optimizer with its step, the metrics so far, and the position in the data; so a run that was
    killed ends with the weights of one that was not. It is saved at the end of each epoch, every
    `every_steps` batches within it, and on SIGTERM: after the batch in progress, and then
    `Terminated` is raised. After the last batch of an epoch validation comes first, unless it takes
    more than 20 seconds; then the run resumes from the checkpoint before. Ctrl-C ends training
    after the batch in progress and saves nothing. A second signal ends the process at once.

    Each checkpoint is a file of its own, renamed when it is complete. The `keep` newest stay; on
    disk they take `keep` + 1 times the state. Several workers share the directory; each writes
    files of its own, and they resume from the newest that all of them have, at whichever batches
    they ended. A directory that is not writable raises `OSError` before training starts, a full
    disk when it occurs; earlier checkpoints stay.

    To resume within an epoch, train on the rest of it by a `fit` of its own, because Keras counts
    an epoch's batches once; the metrics that it logs are those of the whole epoch:

        epoch, batch = resume.restore(model)
        if batch:
            model.fit(data(epoch, first=batch), initial_epoch=epoch, epochs=epoch + 1, ...)
            epoch += 1
        model.fit(data(epoch), initial_epoch=epoch, epochs=..., ...)

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
        ValueError: if `every_steps` or `keep` is not positive; on restoring, if the newest file is
            damaged or belongs to another model; on training, if the directory has checkpoints that
            were not restored.

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
        self._checkpoints = None
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
        self._checkpoints = Checkpoints(self.directory, *worker_of(model))
        numbers = self._checkpoints.numbers()
        self._number, self._begun = None if numbers else 0, None
        if not numbers:
            return 0, 0
        arrays, values = self._checkpoints.read(numbers[-1])
        variables = training_variables(model)
        state = arrays[: len(arrays) - values.get("metrics", 0)]
        if not values_fit(variables, state) or "epoch" not in values:
            raise ValueError(
                f"The file {self._checkpoints.path(numbers[-1])} was saved by another model or "
                "optimizer, or under more or fewer replicas; give another directory, or delete its "
                f"checkpoints to start from the beginning. Received: {len(state)} arrays for "
                f"{len(variables)} variables, or of other shapes"
            )
        assign_variables(variables, state)
        self._number = numbers[-1]
        epoch, batch = values["epoch"], values.get("batch", 0)
        if batch:
            kept = [read_variable(variable) for variable in model.non_trainable_variables]
            self._begun = epoch, batch, kept, arrays[len(state) :]
        return epoch, batch

    def initial_epoch(self, model):
        """Restore `model` and return the epoch only, which is then repeated from its beginning.

        For data that cannot begin in the middle of an epoch.
        """
        epoch, _ = self.restore(model)
        self._begun = None
        return epoch

    def on_train_begin(self, logs=None):
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self.directory, *worker_of(self.model))
        if self._number is None:
            numbers = self._checkpoints.numbers()
            if numbers:
                raise ValueError(
                    f"The directory {self.directory} has checkpoints, which training would "
                    "replace; call `restore` before `fit`, or give another directory. Received: "
                    f"{self._checkpoints.path(numbers[-1])}"
                )
            self._number = 0
        self._checkpoints.prepare(self._number)
        self._sigterm.watch()
        self._sigint.watch()

    def on_train_end(self, logs=None):
        self._stop_watching()
        self._raise_if_signalled()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._first, self._metrics = epoch, 0, None
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == epoch:
            _, self._first, kept, self._metrics = begun
            # Keras has reset the metrics, and a model its memory.
            assign_variables(self.model.non_trainable_variables, kept)
            if values_fit(self.model.metrics_variables, self._metrics):
                assign_variables(self.model.metrics_variables, self._metrics)
                self._metrics = None
        self._saved_at = self._first

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics is not None:
            self._add_metrics()
        # With steps_per_execution > 1 Keras calls this once for several batches.
        done = self._first + batch + 1
        steps = self.params.get("steps")
        if steps is not None and batch + 1 >= steps:
            return  # `on_epoch_end` saves it
        due = self.every_steps and done - self._saved_at >= self.every_steps
        if due or self._sigterm.received is not None:
            self._save(self._epoch, done)
            self._saved_at = done
        self._raise_if_signalled()

    def on_test_batch_end(self, batch, logs=None):
        received = self._sigterm.received
        is_late = received is not None and time.monotonic() - received > GRACE
        if is_late or self._sigint.received is not None:
            self._raise_if_signalled()

    def on_epoch_end(self, epoch, logs=None):
        self._save(epoch + 1, 0)
        self._raise_if_signalled()

    def _stop_watching(self):
        self._sigterm.stop()
        self._sigint.stop()

    def _raise_if_signalled(self):
        for watched, error in ((self._sigint, KeyboardInterrupt), (self._sigterm, Terminated)):
            if watched.received is not None:
                watched.received = None
                raise error

    def _add_metrics(self):
        """Add the restored metrics to those of the first batch, in which TensorFlow makes their
        variables; the parts of replicas add up."""
        sync_jax_state(self.model)
        variables = self.model.metrics_variables
        if values_fit(variables, self._metrics):
            sums = [read_variable(v) + value for v, value in zip(variables, self._metrics)]
            assign_variables(variables, sums)
        self._metrics = None

    def _save(self, epoch, batch):
        sync_jax_state(self.model)
        arrays = read_training_variables(self.model)
        metrics = [read_variable(v) for v in (self.model.metrics_variables if batch else ())]
        position = {"epoch": epoch, "batch": batch, "metrics": len(metrics)}
        self._number += 1
        try:
            self._checkpoints.write(self._number, [*arrays, *metrics], self.keep, **position)
        except BaseException:
            self._stop_watching()
            raise
