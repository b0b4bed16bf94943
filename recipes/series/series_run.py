"""The training that forecasts and classes of series share."""

import keras

from ..common.files import digest
from ..common.optimizer import adam
from ..common.run import TrainingRun
from ..fine_tune.best_epoch import BestEpoch


class SeriesRun(TrainingRun):
    """Training of a model of series, whose weights are those of its best epoch.

    A subclass reads its data before it calls `__init__`, gives `sized` the options with the sizes
    that follow from them, and defines `build()`, which returns the model, and
    `compile_arguments()`.

    Args:
        options: the recipe's.
        tables: list of the `SeriesTable`s that are read.
        has_validation: bool. If False, the weights are those of the last epoch.
    """

    def __init__(self, options, tables, has_validation=True):
        data = digest(*(table.digest() for table in tables))
        super().__init__(options, {"sha256": data, **options.identity()})
        self.best = None
        if has_validation:
            self.best = BestEpoch(self.path("best.npz"), options.patience)
        with self.scope():
            self.model = self.build()
            self.model.compile(
                adam(options), jit_compile=self.jit_compile, **self.compile_arguments()
            )
        self.check_batch("batch_size")

    def train(self):
        """Train, or resume training, and take the weights of the best epoch."""
        data = self.training_data()
        if self.best is None:
            self.fit(*data)
            return
        self.best.set_model(self.model)
        if not self.fit(*data, callbacks=[self.best]):
            self.best.on_train_end()  # the checkpoint has the last epoch's weights
        self.finish()

    def sizes(self):
        """Return entries of the card: the sizes in steps."""
        names = ("context", "patch_length", "stride")
        return {name: getattr(self.sized, name) for name in names}

    def finish(self):
        """Change the weights after the training, by the validation."""

    def is_finished(self, epoch):
        is_last = super().is_finished(epoch)
        return is_last or (self.best is not None and self.best.is_finished(epoch))


class NoValidation:
    """Stand-in for the `EpochDataset` of a validation where there is none."""

    @staticmethod
    def data():
        return None


def fit_beside(model, train, valid, epochs):
    """Train a compiled model that no file keeps; its weights are those of its best epoch.

    Args:
        train, valid: `EpochDataset`s, or `NoValidation`.
        epochs: int.
    """
    held_out = valid.data()
    best = keras.callbacks.EarlyStopping(patience=epochs, restore_best_weights=True)
    model.fit(
        train.data(),
        epochs=epochs,
        validation_data=held_out,
        callbacks=[train.epoch_callback(), *([] if held_out is None else [best])],
        shuffle=False,
        verbose=0,
    )
