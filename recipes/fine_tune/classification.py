"""Classification of texts, or of pairs of texts."""

import keras
import numpy as np

from .labels import check_writing, label_name
from .scores import class_scores
from .task import TextTask, classifier_of, outputs_of


class Classification(TextTask):
    """Classes of texts: the labels of the training rows, in alphabetical order.

    Raises:
        ValueError: if there is one class only, a label is no string or number, two differ by their
            writing alone, or a split has a label that the training rows lack.
    """

    metric, curve = "accuracy", "val_accuracy"

    def __init__(self, splits, options):
        super().__init__(splits, options)
        names = {split: {*map(label_name, splits[split].labels)} for split in splits}
        place = place_of_name(splits, lambda label: [label_name(label)])
        self.names = class_names(names, options.label_column, place)

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


def class_names(names, column, place):
    """Return the labels of the training rows in alphabetical order.

    Args:
        names: dict of sets of str, the labels of each split.
        column: str. Name of the column, for the errors.
        place: function of a label that returns where it is first.

    Raises:
        ValueError: if there is one label only, two differ by their writing alone, or a split has a
            label that the training rows lack.
    """
    known = sorted(names["train"])
    check_writing(set().union(*names.values()), column, place)
    if len(known) < 2:
        raise ValueError(
            f"The column {column!r} must have two labels at least. Received: only {known[0]!r}."
        )
    for split, own in names.items():
        if unknown := sorted(own - {*known}):
            raise ValueError(
                f"The rows of {split} have the label {unknown[0]!r}, which no row of train has, in "
                f"{place(unknown[0])}."
            )
    return known


def place_of_name(splits, names_of):
    """Return a function of a label's name that finds its first place in a dict of `Examples`.

    `names_of` is a function of the label of a row, which returns the names in it.
    """

    def place(name):
        return next(
            examples.place(index)
            for examples in splits.values()
            for index, label in enumerate(examples.labels)
            if name in names_of(label)
        )

    return place
