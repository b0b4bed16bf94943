"""Regression: a number for a text, or for a pair of texts."""

import keras
import numpy as np

from keras_attn.backend.replicas import whole_values

from .labels import label_number
from .scores import number_scores
from .task import TextTask, classifier_of, outputs_of


class Regression(TextTask):
    """Numbers of texts, of mean 0 and deviation 1 in training and in their units after it.

    Raises:
        ValueError: if a label is no finite number, or all labels of the training rows are equal.
    """

    metric, curve = "mean_absolute_error", "val_loss"

    def __init__(self, splits, options):
        super().__init__(splits, options)
        values = {split: self._values(splits[split]) for split in splits}
        self._mean, self._deviation = values["train"].mean(), values["train"].std()
        if self._deviation == 0:
            raise ValueError(
                f"The column {options.label_column!r} must have two different numbers at least. "
                f"Received: only {self._mean:g}."
            )

    def model_of(self, start):
        # To which `finish` adds the mean of the labels.
        return classifier_of(start, 1, self.options.pooling, use_bias=True)

    def targets(self, examples):
        """Return the standardised numbers, float32 (N,)."""
        return ((self._values(examples) - self._mean) / self._deviation).astype("float32")

    def compile_arguments(self):
        return {"loss": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")}

    def evaluate(self, model, batches, examples):
        """Return the mean absolute error and R squared."""
        predicted = np.concatenate([outputs[:, 0] for outputs, _ in outputs_of(model, batches)])
        return number_scores(self._values(examples), predicted, self._mean)

    def finish(self, model):
        """Give the trained model's output the units of the labels."""
        with whole_values(model.head.variables):
            kernel, bias = model.head.get_weights()
        model.head.set_weights([kernel * self._deviation, bias * self._deviation + self._mean])

    def _values(self, examples):
        values = np.array([*map(label_number, examples.labels)])
        if not np.isfinite(values).all():
            index = int(np.isfinite(values).argmin())
            raise ValueError(
                f"The column {self.options.label_column!r} must have finite numbers. "
                f"Received: {examples.labels[index]!r} in {examples.place(index)}."
            )
        return values
