"""Classification of texts, or of pairs of texts."""

import json

import keras
import numpy as np

from .scores import class_scores
from .task import TextTask, classifier_of, outputs_of


class Classification(TextTask):
    """Classes of texts: the labels of the training rows, in alphabetical order.

    Raises:
        ValueError: if there is one class only, a label is no string or number, or a split has a
            label that the training rows lack.
    """

    metric, curve = "accuracy", "val_accuracy"

    def __init__(self, splits, options):
        super().__init__(splits, options)
        label_names = {split: {*map(label_name, splits[split].labels)} for split in splits}
        self.names = class_names(label_names, options.label_column)

    def model_of(self, start):
        return classifier_of(start, len(self.names), self.options.pooling)

    def targets(self, examples):
        """Return the index of each row's label, int32 (N,)."""
        indices = {name: index for index, name in enumerate(self.names)}
        return np.array([indices[label_name(label)] for label in examples.labels], "int32")

    def weights(self, targets):
        """Return a weight of each training row, of mean 1."""
        if self.options.class_weights != "balanced":
            return super().weights(targets)
        counts = np.bincount(targets, minlength=len(self.names))
        return (len(targets) / (len(self.names) * counts))[targets]

    def compile_arguments(self):
        # Rows of weight 0, as devices add them, do not count.
        reduction = "mean_with_sample_weight"
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(True, reduction=reduction),
            "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        }

    def evaluate(self, model, batches, examples):
        """Return accuracy, macro F1 and each class's F1."""
        logits = np.concatenate([outputs for outputs, _ in outputs_of(model, batches)])
        return class_scores(self.targets(examples), logits.argmax(axis=1), self.names, "texts")

    def labels(self):
        return {"labels": self.names}

    def export_arguments(self, tokenizer):
        return {**super().export_arguments(tokenizer), "labels": self.names}


def class_names(names, column):
    """Return the labels of the training rows in alphabetical order.

    Args:
        names: dict of sets of str, the labels of each split.
        column: str. Name of the column, for the errors.

    Raises:
        ValueError: if there is one label only, or a split has a label that the training rows lack.
    """
    known = sorted(names["train"])
    if len(known) < 2:
        raise ValueError(
            f"The column {column!r} must have two labels at least. Received: only {known[0]!r}."
        )
    for split, own in names.items():
        if unknown := sorted(own - {*known}):
            raise ValueError(
                f"The rows of {split} have the label {unknown[0]!r}, which no row of train has."
            )
    return known


def label_name(label):
    """Return a label as a string; JSON's numbers and truth values as JSON writes them."""
    if isinstance(label, list | dict):
        raise ValueError(f"A label must be a string or a number. Received: {label!r}.")
    return label if isinstance(label, str) else json.dumps(label)
