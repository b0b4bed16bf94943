"""Going on after a kill."""

import os

import keras

from keras_attn.training.arrays_file import read_arrays, write_arrays


class Resume(keras.callbacks.Callback):
    """Saves the whole state of training, and restores it before the next `fit`.

    The state is the model's weights, its random seeds, the optimizer with its step, and the
    epoch; so a run that was killed between two epochs ends with the same weights as one that was
    not. A run killed within an epoch repeats that epoch, from the state of its beginning or, with
    `every_steps`, from the last one saved within it. The state is one file, replaced in one move:
    killed while it is being written, it is still the one before.

    `keras.callbacks.BackupAndRestore` (3.15) overwrites its file in place, which a kill leaves
    unreadable; it does not notice changed bytes, does not restore seeds, and knows the epoch only
    inside `fit`, too late for the order of the data to follow it. The state stays when training
    ends, so that a finished run, started again, does not train again.

    Put it last among the callbacks: whatever the others write at the end of an epoch is then
    written before that epoch counts as done.

    Args:
        directory: str. Where the state is kept; one directory for one run.
        every_steps: int, optional. Saves also after this many batches within an epoch.

    Raises:
        ValueError: if `every_steps` is not positive; on restoring, if the file is damaged or
            belongs to another model.

    Example:

    >>> import keras, numpy as np, tempfile
    >>> from keras_attn.training import Resume
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> resume = Resume(tempfile.mkdtemp())
    >>> resume.initial_epoch(model)
    0
    >>> history = model.fit(np.ones((4, 1)), np.ones(4), epochs=2, verbose=0, callbacks=[resume])
    >>> resume.initial_epoch(model)  # pass it to fit(..., initial_epoch=...), and to the data
    2
    """

    def __init__(self, directory, every_steps=None):
        super().__init__()
        if every_steps is not None and every_steps < 1:
            raise ValueError(f"`every_steps` must be positive. Received: every_steps={every_steps}")
        self.every_steps = every_steps
        self.path = os.path.join(directory, "resume.npz")
        self._epoch = 0
        self._saved_at = 0

    def initial_epoch(self, model):
        """Restores `model`, built and compiled, and returns the epoch at which `fit` goes on.

        Where nothing was saved the model stays as it is and the epoch is 0.
        """
        if not os.path.exists(self.path):
            return 0
        arrays, numbers = read_arrays(self.path)
        variables = _state(model)
        shapes = [tuple(variable.shape) for variable in variables]
        if shapes != [array.shape for array in arrays] or "epoch" not in numbers:
            raise ValueError(
                f"The file {self.path} was saved by another model or optimizer; give another "
                f"directory, or delete it to start from the beginning. Received: {len(arrays)} "
                f"arrays for {len(variables)} variables, or of other shapes"
            )
        for variable, array in zip(variables, arrays):
            variable.assign(array)
        return numbers["epoch"]

    def restore(self, model):
        return self.initial_epoch(model), 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._saved_at = 0

    def on_train_batch_end(self, batch, logs=None):
        # With steps_per_execution > 1 Keras calls this once for several batches.
        if self.every_steps and batch + 1 - self._saved_at >= self.every_steps:
            self._save(self._epoch)
            self._saved_at = batch + 1

    def on_epoch_end(self, epoch, logs=None):
        self._save(epoch + 1)

    def _save(self, epoch):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # within an epoch JAX keeps the state outside the model
        arrays = [variable.numpy() for variable in _state(self.model)]
        write_arrays(self.path, arrays, epoch=epoch)


def _state(model):
    """Every variable of training: weights, seeds, optimizer."""
    if not model.built or getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"`model` must be built and compiled before it is restored. Received: model={model}"
        )
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]
