"""A run that classifies series."""

import time

import keras
import numpy as np

from ..common.epoch_dataset import EpochDataset
from ..common.files import write_json
from ..common.optimizer import adam
from ..fine_tune.classification import class_names
from ..fine_tune.scores import class_scores
from ..image.batches import OrderedBatches, ShuffledBatches
from ..predict import compiled
from . import synthetic
from .baselines import ridge_classes
from .labelled import ChangedBatches, LabelledSeries, hold_out
from .lstm import build_lstm_classifier
from .models import build_classifier
from .series_run import NoValidation, SeriesRun, fit_beside
from .tables import read_series

SYNTHETIC = "forms of waves in noise"


class ClassRun(SeriesRun):
    """Training and evaluation of a model that classifies series."""

    def __init__(self, options):
        self.name, tables = _read(options)
        test_share = None if options.test else options.test_share
        parts = hold_out(tables[0].series, options.valid_share, test_share, options.seed)
        if options.test:
            parts["test"] = tables[1].series
        names = {split: {one.label for one in series} for split, series in parts.items()}
        self.labels = class_names(names, options.label_column, _place_in(parts))
        longest = max(len(one.values) for one in parts["train"])
        self.sized = options.with_context(1, longest)
        self.columns = tables[0].columns
        self.splits = {
            split: LabelledSeries(series, self.labels, self.sized.context)
            for split, series in parts.items()
            if series
        }
        self.curve = "val_accuracy" if "valid" in self.splits else "accuracy"
        super().__init__(options, tables, has_validation="valid" in self.splits)

    def build(self):
        return build_classifier(self.sized, self.splits["train"].values, len(self.labels))

    def compile_arguments(self):
        smoothing = self.options.label_smoothing
        return {
            "loss": keras.losses.CategoricalCrossentropy(True, label_smoothing=smoothing),
            "weighted_metrics": [keras.metrics.CategoricalAccuracy(name="accuracy")],
        }

    def training_data(self):
        return self._training_data(self.options)

    def data_bytes(self):
        return sum(part.values.nbytes for part in self.splits.values())

    def evaluate(self):
        """Return accuracy, macro F1 and each class's F1 on the test, beside baselines."""
        started = time.monotonic()
        test = self.splits["test"]
        results = self._scores(self._classes(self.model))
        train = self.splits["train"]
        baselines = {
            "most frequent": results["baseline"],
            "ridge on values": self._accuracy(
                ridge_classes(train.values, train.labels, test.values)
            ),
        }
        if self.options.lstm_steps:
            baselines["lstm"] = self._accuracy(self._classes(self._train_lstm()))
        results["baselines"] = baselines
        seconds = round(time.monotonic() - started, 1)
        return {"test": {"metric": "accuracy", **results, "seconds": seconds}}

    def summary(self, card):
        result = card["results"]["test"]
        for name, accuracy in {"model": result["value"], **result["baselines"]}.items():
            yield f"{name:16}accuracy {accuracy:.4f}"
        yield from super().summary(card)

    def save_settings(self):
        super().save_settings()
        write_json(self.path("labels.json"), {"labels": self.labels})

    def card_entries(self):
        return {
            "task": f"{self.name}: {len(self.labels)} classes",
            "series": {split: len(part) for split, part in self.splits.items()},
            "channels": self.columns,
            "labels": self.labels,
            **self.sizes(),
        }

    def _training_data(self, options):
        steps = options.steps // options.epochs
        train = self.splits["train"]
        batches = ShuffledBatches(train, options.batch_size, steps, options.seed, encode)
        deviations = np.nanstd(train.values, axis=(0, 1))
        changed = ChangedBatches(batches, options, deviations, len(self.labels))
        if "valid" not in self.splits:
            return EpochDataset(changed), NoValidation()
        valid = OrderedBatches(self.splits["valid"], options.batch_size, self._one_hot)
        return EpochDataset(changed), EpochDataset(valid, free_axes=(0,))

    def _one_hot(self, values, labels):
        return {"values": values}, np.eye(len(self.labels), dtype="float32")[labels]

    def _classes(self, model):
        """Return the predicted classes of the test, int (N,)."""
        predict = compiled(model)
        batches = OrderedBatches(self.splits["test"], self.options.batch_size, encode)
        inputs = (batches.batch(0, index)[0] for index in range(len(batches)))
        return np.concatenate([np.asarray(predict(x)).argmax(axis=-1) for x in inputs])

    def _scores(self, predicted):
        return class_scores(self.splits["test"].labels, predicted, self.labels, "series")

    def _accuracy(self, predicted):
        return float(np.mean(predicted == self.splits["test"].labels))

    def _train_lstm(self):
        """Return an LSTM trained as the model is."""
        options = self.sized.of_lstm()
        model = build_lstm_classifier(options, len(self.columns), len(self.labels))
        model.compile(adam(options), **self.compile_arguments())
        train, valid = self._training_data(options)
        fit_beside(model, train, valid, options.epochs)
        return model


def encode(values, labels):
    """Return inputs and targets of a model."""
    return {"values": values}, labels


def _read(options):
    """Return the name of the data, and a list of their tables."""
    if options.data is None:
        return SYNTHETIC, [synthetic.waves_in_noise(options.seed)]
    columns = (
        *(options.time_column, options.id_column),
        *(options.value_columns, options.label_column),
    )
    tables = [read_series(path, *columns) for path in (options.data, options.test) if path]
    if options.test and tables[1].columns != tables[0].columns:
        raise ValueError(
            f"The files must have the same columns of values. Received: {tables[0].columns} in "
            f"{options.data} and {tables[1].columns} in {options.test}."
        )
    return options.data, tables


def _place_in(parts):
    """Return a function of a label that names the first series with it."""

    def place(label):
        series = (one for part in parts.values() for one in part)
        return f"the series {next(one.name for one in series if one.label == label)!r}"

    return place
