"""Several labels of a text, or of a pair of texts, or none."""

import keras
import numpy as np

from .classification import class_names, place_of_name
from .labels import label_name
from .scores import label_scores
from .task import TextTask, classifier_of, outputs_of

SEPARATOR = ";"


class SeveralLabels(TextTask):
    """Labels of texts, each of which may have several or none.

    The labels of a text have ";" between them; in `.jsonl` they may be a list, also an empty one.

    Raises:
        ValueError: as for classes.
    """

    metric, curve = "micro_f1", "val_accuracy"
    has_token_targets = False

    def __init__(self, splits, options):
        super().__init__(splits, options)
        names = {
            split: set().union(*map(split_labels, examples.labels))
            for split, examples in splits.items()
        }
        place = place_of_name(splits, split_labels)
        self.names = class_names(names, options.label_column, place)

    def model_of(self, start):
        return classifier_of(start, len(self.names), self.options.pooling, multi_label=True)

    def targets(self, examples):
        """Return 1 for each label of a row, else 0, float32 (N, K)."""
        own = [{*split_labels(label)} for label in examples.labels]
        return np.array([[name in labels for name in self.names] for labels in own], "float32")

    def compile_arguments(self):
        # Rows of weight 0, as devices add them, do not count.
        reduction = "mean_with_sample_weight"
        return {
            "loss": keras.losses.BinaryCrossentropy(from_logits=True, reduction=reduction),
            # Of logits: above 0 a label is more probable than not.
            "weighted_metrics": [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)],
        }

    def evaluate(self, model, batches, examples):
        """Return micro F1, macro F1, each label's F1, and the share of exact rows."""
        logits = np.concatenate([outputs for outputs, _ in outputs_of(model, batches)])
        return label_scores(self.targets(examples) > 0, logits > 0, self.names)

    def labels(self):
        return {"labels": self.names}

    def export_arguments(self, tokenizer):
        return {**super().export_arguments(tokenizer), "labels": self.names}


def split_labels(value):
    """Return the labels of a string with separators, or a list as labels."""
    if isinstance(value, list):
        return [label_name(label) for label in value]
    parts = (part.strip() for part in label_name(value).split(SEPARATOR))
    return [part for part in parts if part]
