"""Going on after a kill."""

import signal
import time

import keras

from keras_attn.callbacks.checkpoints import Checkpoints
from keras_attn.callbacks.deferred_signal import DeferredSignal, Terminated
from keras_attn.callbacks.training_state import (
    fits,
    leave_the_loop,
    pull,
    pull_state,
    push_all,
    state_of,
)
from keras_attn.distribution.workers import worker_of

GRACE = 20.0  # seconds; what ends processes waits 30 or more before it kills them


class Resume(keras.callbacks.Callback):
    """Saves the whole state of training, and restores it before the next `fit`.

    The state is the model's weights, its random seeds and memories, those of every replica, the
    optimizer with its step, the metrics so far, and how far the data were read; so a run that was
    killed ends with the same weights as one that was not. It is saved at the end of each epoch,
    every `every_steps` batches within it, and when the process is told to end by SIGTERM: after the
    batch in progress, which `Terminated` follows. After an epoch's last batch it is first validated,
    if that ends within 20 seconds; if not, training goes on from the checkpoint before. A second
    SIGTERM ends the process at once. Ctrl-C ends training after the batch in progress, a second one
    at once; nothing is saved then.

    Each checkpoint is a file of its own, written beside the others and moved when it is whole, and
    the `keep` newest stay; on disk they take `keep` + 1 times the state. Under
    `MultiWorkerMirroredStrategy` all workers share the directory; each writes a file of its own, and
    they go on from the newest that all of them have, at whichever batches they ended. A directory
    that cannot be written to is told before training starts, and a full disk when it is met, both
    as an `OSError`; what was saved before stays.

    To go on within an epoch, train on what is left of it by a `fit` of its own, for Keras counts
    an epoch's batches once; the metrics it logs are those of the whole epoch:

        epoch, batch = resume.restore(model)
        if batch:
            model.fit(data(epoch, first=batch), initial_epoch=epoch, epochs=epoch + 1, ...)
            epoch += 1
        model.fit(data(epoch), initial_epoch=epoch, epochs=..., ...)

    Put it last among the callbacks: whatever the others write at the end of an epoch is then
    written before that epoch counts as done. The checkpoints stay when training ends, so that a
    finished run, started again, does not train again.

    `keras.callbacks.BackupAndRestore` (3.15) overwrites its file in place, which a kill leaves
    unreadable; it does not notice changed bytes, does not restore seeds, and knows the epoch only
    inside `fit`, too late for the order of the data to follow it.

    Args:
        directory: str. Where the state is kept; one directory for one run.
        every_steps: int, optional. Saves also after this many batches within an epoch.
        keep: int. How many checkpoints stay.

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
    >>> history = model.fit(np.ones((4, 1)), np.ones(4), epochs=2, verbose=0, callbacks=[resume])
    >>> resume.restore(model)
    (2, 0)
    """

    def __init__(self, directory, every_steps=None, keep=2):
        super().__init__()
        if every_steps is not None and every_steps < 1:
            raise ValueError(f"`every_steps` must be positive. Received: every_steps={every_steps}")
        if keep < 1:
            raise ValueError(f"`keep` must be positive. Received: keep={keep}")
        self.directory, self.every_steps, self.keep = directory, every_steps, keep
        self._sigterm, self._sigint = DeferredSignal(signal.SIGTERM), DeferredSignal(signal.SIGINT)
        self._checkpoints = None
        self._number = None  # of the newest checkpoint that was restored or saved
        self._epoch = self._first = self._saved_at = 0
        # What was restored within an epoch, until `fit` begins it: the epoch, the batches done, the
        # values of the model's variables that are not trained, and the metrics.
        self._begun = None
        self._metrics = None  # values that wait for their variables

    def restore(self, model):
        """Restores `model`, built and compiled, from the newest checkpoint.

        Returns:
            (epoch, batch): the epoch at which `fit` goes on, and how many of its batches are trained
            on already. They are all of them only where Keras does not know their number and the
            process was killed before the epoch's end was saved. Where nothing was saved the model
            stays as it is and both are 0.
        """
        self._checkpoints = Checkpoints(self.directory, *worker_of(model))
        numbers = self._checkpoints.numbers()
        self._number, self._begun = 0, None
        if not numbers:
            return 0, 0
        arrays, values = self._checkpoints.read(numbers[-1])
        variables = state_of(model)
        state = arrays[: len(arrays) - values.get("metrics", 0)]
        if not fits(variables, state) or "epoch" not in values:
            raise ValueError(
                f"The file {self._checkpoints.path(numbers[-1])} was saved by another model or "
                "optimizer, or under more or fewer replicas; give another directory, or delete its "
                f"checkpoints to start from the beginning. Received: {len(state)} arrays for "
                f"{len(variables)} variables, or of other shapes"
            )
        push_all(variables, state)
        self._number = numbers[-1]
        epoch, batch = values["epoch"], values.get("batch", 0)
        if batch:
            kept = [pull(variable) for variable in model.non_trainable_variables]
            self._begun = epoch, batch, kept, arrays[len(state) :]
        return epoch, batch

    def initial_epoch(self, model):
        """As `restore`, for data that cannot begin in the middle: gives the epoch only, which is
        then repeated from its beginning."""
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
                    f"The directory {self.directory} has checkpoints, which training would replace; "
                    "call `restore` before `fit`, or give another directory. Received: "
                    f"{self._checkpoints.path(numbers[-1])}"
                )
            self._number = 0
        self._checkpoints.prepare(self._number)
        self._sigterm.watch()
        self._sigint.watch()

    def on_train_end(self, logs=None):
        self._stop_watching()
        self._end_if_told()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._first, self._metrics = epoch, 0, None
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == epoch:
            _, self._first, kept, self._metrics = begun
            # Keras has reset the metrics, and a model its memory.
            push_all(self.model.non_trainable_variables, kept)
            if fits(self.model.metrics_variables, self._metrics):
                push_all(self.model.metrics_variables, self._metrics)
                self._metrics = None
        self._saved_at = self._first

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics is not None:
            self._add_metrics()
        # With steps_per_execution > 1 Keras calls this once for several batches.
        done = self._first + batch + 1
        steps = self.params.get("steps")
        if steps is not None and batch + 1 >= steps:
            return  # the end of the epoch is at hand, and is saved as that
        due = self.every_steps and done - self._saved_at >= self.every_steps
        if due or self._sigterm.received is not None:
            self._save(self._epoch, done)
            self._saved_at = done
        self._end_if_told()

    def on_test_batch_end(self, batch, logs=None):
        received = self._sigterm.received
        is_late = received is not None and time.monotonic() - received > GRACE
        if is_late or self._sigint.received is not None:
            self._end_if_told()

    def on_epoch_end(self, epoch, logs=None):
        self._save(epoch + 1, 0)
        self._end_if_told()

    def _stop_watching(self):
        self._sigterm.stop()
        self._sigint.stop()

    def _end_if_told(self):
        if self._sigint.received is not None:
            self._sigint.received = None
            raise KeyboardInterrupt
        if self._sigterm.received is not None:
            self._sigterm.received = None
            raise Terminated

    def _add_metrics(self):
        """Adds what was measured before to what was measured since. TensorFlow makes the variables
        of metrics in the first batch; as replicas', their parts add up."""
        leave_the_loop(self.model)
        variables = self.model.metrics_variables
        if fits(variables, self._metrics):
            push_all(variables, [pull(v) + value for v, value in zip(variables, self._metrics)])
        self._metrics = None

    def _save(self, epoch, batch):
        leave_the_loop(self.model)
        arrays = pull_state(self.model)
        metrics = [pull(variable) for variable in self.model.metrics_variables] if batch else []
        self._number += 1
        try:
            self._checkpoints.write(
                self._number,
                [*arrays, *metrics],
                self.keep,
                epoch=epoch,
                batch=batch,
                metrics=len(metrics),
            )
        except BaseException:
            self._stop_watching()
            raise
