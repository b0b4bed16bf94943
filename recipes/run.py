"""What every run is: a directory that a later run with the same options continues."""

import contextlib
import os

import keras

from keras_attn import training
from recipes.card import EpochSeconds
from recipes.settings import check_settings, save_settings


class Run:
    """A run in the directory `options.out`.

    Args:
        options: with `out`, `strategy`, `checkpoint_steps` and `export_version`.
        settings: dict of what must not change from one start to the next.

    Raises:
        ValueError: if the run was started with other settings, or the export's version exists.
    """

    def __init__(self, options, settings):
        self.options = options
        self._settings = settings
        self._distribution = None
        self.exported = None
        check_settings(self.path("settings.json"), settings, options.out)
        version = self.path(os.path.join("export", str(options.export_version)))
        if os.path.exists(version):
            raise ValueError(f"The export {version} exists and is not overwritten.")

    def begin(self):
        """Makes the directory, once the input is known to be right."""
        os.makedirs(self.options.out, exist_ok=True)
        save_settings(self.path("settings.json"), self._settings)

    def path(self, name):
        return os.path.join(self.options.out, name)

    def scope(self):
        """Where variables are to be made, for `--strategy`."""
        if self.options.strategy == "none":
            return contextlib.nullcontext()
        if self._distribution is None:
            import tensorflow as tf

            self._distribution = tf.distribute.MirroredStrategy()
        return self._distribution.scope()

    def steps(self, model):
        """How many steps a compiled model was trained for."""
        # Not int(): under a strategy the counter is a variable of several parts.
        return int(keras.ops.convert_to_numpy(model.optimizer.iterations))

    def resume(self, model):
        """Restores a compiled model: the callback that saves it, and the epoch to go on with."""
        resume = training.Resume(self.path("checkpoint"), self.options.checkpoint_steps)
        with self.scope():  # where the optimizer's variables belong
            return resume, resume.initial_epoch(model)

    def logs(self, first_epoch):
        """Callbacks that write seconds, losses and metrics to files."""
        return [
            EpochSeconds(),
            keras.callbacks.CSVLogger(self.path("history.csv"), append=first_epoch > 0),
            keras.callbacks.TensorBoard(self.path("tensorboard"), write_graph=False),
        ]
