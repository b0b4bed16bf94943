"""Labels of the words of a text."""

import keras
import numpy as np

from keras_attn import metrics, models

from .classification import class_names, place_of_name
from .encoded_texts import EncodedTexts
from .labels import label_name
from .scores import class_scores
from .task import Task, outputs_of, token_loss

_UNLABELLED = -1


class Tagging(Task):
    """Labels of words, at the first token of each.

    A text is words with spaces between, and so are its labels; in `.jsonl` both may be lists.

    Raises:
        ValueError: as for classes; or if a row has more or fewer labels than words.
    """

    metric, curve = "accuracy", "val_token_accuracy"

    def __init__(self, splits, options):
        super().__init__(splits, options)
        label_names = {}
        for split, examples in splits.items():
            rows = zip(examples.texts, examples.labels, strict=True)
            for index, (text, label) in enumerate(rows):
                words, tags = split_words(text), split_words(label)
                if len(words) != len(tags):
                    raise ValueError(
                        f"Each row of {split} must have a label for each word. Received: "
                        f"{len(words)} words and {len(tags)} labels in {examples.place(index)}."
                    )
                label_names.setdefault(split, set()).update(tags)
        place = place_of_name(splits, split_words)
        self.names = class_names(label_names, options.label_column, place)

    def model_of(self, start):
        """Return a model that shares the parts of another and has a head of classes."""
        head = keras.layers.Dense(
            len(self.names), kernel_initializer="zeros", dtype="float32", name="head"
        )
        parts = (start.embedding, start.position, start.segment, start.norm, start.encoder)
        return models.MaskedLanguageModel(*parts, head, start.dropout, name=start.name)

    def rows(self, model, tokenizer, examples, is_training=False):
        """Return `EncodedTexts` whose targets are -1 at all tokens but the first ones of words."""
        words = [split_words(text) for text in examples.texts]
        pieces = iter(tokenizer.encode_as_lists([f" {word}" for row in words for word in row]))
        pieces = [[next(pieces) for _ in row] for row in words]
        template, most = tokenizer.template, self.options.max_length
        nothing = np.empty(0, "int32")
        ids = template.around([np.concatenate([*row, nothing]) for row in pieces], most)
        inputs = np.full((len(ids), max(map(len, ids))), model.pad_id or 0, "int32")
        targets = np.full(inputs.shape, _UNLABELLED, "int32")
        indices = {name: index for index, name in enumerate(self.names)}
        for row, (row_ids, parts, label) in enumerate(
            zip(ids, pieces, examples.labels, strict=True)
        ):
            inputs[row, : len(row_ids)] = row_ids
            position, end = len(template.start), len(row_ids) - len(template.end)
            for part, tag in zip(parts, split_words(label), strict=True):
                if len(part) and position < end:
                    targets[row, position] = indices[tag]
                position += len(part)
        lengths = np.array([*map(len, ids)])
        return EncodedTexts({"token_ids": inputs}, lengths, targets, np.ones(len(ids), "float32"))

    def compile_arguments(self):
        return {
            "loss": token_loss(_UNLABELLED),
            "weighted_metrics": [metrics.TokenAccuracy(ignore_class=_UNLABELLED)],
        }

    def evaluate(self, model, batches, examples):
        """Return accuracy, macro F1 and each label's F1, over words that have a token."""
        expected, predicted = [], []
        for outputs, targets in outputs_of(model, batches):
            is_word = targets != _UNLABELLED
            expected.append(targets[is_word])
            predicted.append(outputs.argmax(axis=-1)[is_word])
        expected, predicted = map(np.concatenate, (expected, predicted))
        results = class_scores(expected, predicted, self.names, "words")
        left_out = sum(len(split_words(label)) for label in examples.labels) - len(expected)
        if left_out:
            results["signature"] += f"; {left_out} more have no token within --max-length"
        return results

    def labels(self):
        return {"labels": self.names}

    def export_arguments(self, tokenizer):
        return {**super().export_arguments(tokenizer), "labels": self.names}


def split_words(value):
    """Return the words of a string, or a list as words; the export divides texts alike."""
    if isinstance(value, list):
        return [label_name(word) for word in value]
    return [word.decode() for word in label_name(value).encode().split()]
