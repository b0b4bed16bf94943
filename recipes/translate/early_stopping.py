"""Early stopping by the scores in a run's history, also of a resumed run."""

import math

import keras

from keras_attn.distribution.workers import worker_of

from ..common.card import read_history


class EarlyStopping(keras.callbacks.Callback):
    """Stop training after some validations without a better value.

    `keras.callbacks.EarlyStopping` begins to count anew in each `fit`. Here `is_finished` counts
    the validations in the run's history first. A value of NaN is no better than any other. Put the
    callback after those that log the metric.

    Args:
        history: str. A file of `recipes.common.card.History`.
        metric: str. Its column.
        is_loss: bool. True if a lower value is better.
        patience: int.
    """

    def __init__(self, history, metric, is_loss, patience):
        super().__init__()
        self._history, self._metric = history, metric
        self._is_loss, self._patience = is_loss, patience
        self._best, self._waited = None, 0

    def is_finished(self, epoch):
        """Count the validations before an epoch; return True if they have ended the training."""
        self._best, self._waited = None, 0
        for row in read_history(self._history):
            if row["epoch"] < epoch:
                self._count(row.get(self._metric))
        return self._waited >= self._patience

    def on_epoch_end(self, epoch, logs=None):
        self._count((logs or {}).get(self._metric))
        if self._waited < self._patience:
            return
        self.model.stop_training = True
        if worker_of(self.model)[0] == 0:
            best = "" if self._best is None else f" than {self._best:.4g}"
            print(
                f"Stopped after epoch {epoch + 1}: {self._metric} has not been better{best} in "
                f"{self._waited} validations."
            )

    def _count(self, value):
        """Count a validation; None is an epoch without one."""
        if value is None:
            return
        if not math.isnan(value) and (self._best is None or self._is_better(value)):
            self._best, self._waited = value, 0
        else:
            self._waited += 1

    def _is_better(self, value):
        return value < self._best if self._is_loss else value > self._best
