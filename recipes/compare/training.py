"""Comparison of the values of an axis: training, table and curves."""

import contextlib
import json
import os
import signal
import time

import keras

from keras_attn import callbacks, distribution, losses
from keras_attn.callbacks.deferred_signal import DeferredSignal
from keras_attn.distribution.workers import worker_of_strategy
from keras_attn.memory import StatefulSegments

from .. import dry_run, files
from ..card import provenance
from ..epoch_dataset import EpochDataset
from ..optimizer import JIT_COMPILE, adam
from ..plots import draw_curves
from ..progress import duration, fit_verbosity
from ..settings import check_agreement, check_out, check_settings, save_settings
from ..text.corpus import Corpus
from ..text.data import read_text, text_identity
from ..text.segments import make_segments, make_validation
from ..text.tokens import FILE_NAME
from .axes import axes, build


def run(options, started):
    comparison = Comparison(options)
    if options.prepare:
        with files.exclusive_directory(options.out):
            comparison.corpus.tokens.save()
        print(f"Tokens: {options.out}/{FILE_NAME}")
        return
    lines = comparison.dry_run() if options.dry_run else comparison.complete(started)
    if lines is not None:
        print("\n".join(lines))


class Comparison:
    """Training with each value of an axis in the directory `options.out`, which can be resumed."""

    def __init__(self, options):
        check_out(options.out)
        self.options = options
        name, splits = read_text(options.data_dir, options.text)
        self._settings = text_identity(options, name, splits)
        check_settings(self._path("settings.json"), self._settings, options.out)
        known = axes(options)[options.axis]
        chosen = options.values or tuple(known)
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise ValueError(
                f"--values must be among {', '.join(known)} for the axis {options.axis}. "
                f"Received: {', '.join(unknown)}."
            )
        # Processes can join only before anything is computed.
        self.devices = distribution.strategy(options.devices)
        check_agreement(self.devices, {**self._settings, "values": list(chosen)})
        # Of several processes only the first one writes.
        self.is_first = worker_of_strategy(self.devices)[0] == 0
        self.names = [n for n in known if n in chosen or os.path.exists(self._result_path(n))]
        self.corpus = Corpus.load(name, splits, options)
        self.corpus.check_rows(options.batch_size, "train", "valid")

    def complete(self, started):
        """Train missing values, and return the table and a summary; None after the first process.

        The comparison `started` at that time of `time.monotonic()`.

        Raises:
            ValueError: if another process trains in the directory.
        """
        lock = files.exclusive_directory(self.options.out)
        with lock if self.is_first else contextlib.nullcontext():
            results = self.train_missing()
            if not self.is_first:
                return None
            lines, seconds = self.write(results), duration(time.monotonic() - started)
        names = f"Table: {self._path('table.md')}", f"Card:  {self._path('card.json')}"
        best = min(results, key=lambda name: results[name]["bits_per_character"][-1])
        return [
            *lines,
            *names,
            f"Done in {seconds}: {self.options.axis}, best {best} of {len(results)} values, with "
            f"{results[best]['bits_per_character'][-1]:.3f} bits per character.",
        ]

    def dry_run(self):
        """Return the lines of a dry run; None after the first process."""
        trained = [name for name in self.names if os.path.exists(self._result_path(name))]
        estimates = {name: self._estimate(name) for name in self.names if name not in trained}
        if not self.is_first:
            return None
        places = "VALUE.json, card.json, table.md and curves.png"
        data_bytes = self.corpus.tokens.nbytes
        return dry_run.report(self.options, estimates, places, data_bytes, trained)

    def train_missing(self):
        """Return the results of the chosen values, and of those trained before."""
        paths = {name: self._result_path(name) for name in self.names}
        results = {name: _read(path) for name, path in paths.items() if os.path.exists(path)}
        for name in self.names:
            if name not in results:
                print(name, flush=True)
                results[name] = self._train(name)
                if self.is_first:
                    self._save(name, results[name])
        return {name: results[name] for name in self.names}

    def write(self, results):
        """Write the card, the table and the curves; return the table."""
        card = {**provenance(self.options), "task": self.corpus.name, "results": results}
        files.write(self._path("card.json"), json.dumps(card, indent=1))
        lines = table(self.options.axis, results)
        files.write(self._path("table.md"), "\n".join(lines) + "\n")
        curves = {name: found["bits_per_character"] for name, found in results.items()}
        label = "bits per character, validation"
        draw_curves(self._path("curves.png"), curves, label, self.options.axis)
        return lines

    def _save(self, name, result):
        """Write a result, and the settings and tokens that a resumed comparison shares."""
        os.makedirs(self.options.out, exist_ok=True)
        save_settings(self._path("settings.json"), self._settings)
        self.corpus.tokens.save()
        files.write(self._result_path(name), json.dumps(result, indent=1))

    def _prepare(self, name):
        """Return the model of a value, the compiled model or wrapper that is trained, and data."""
        options = self.options
        keras.utils.set_random_seed(options.seed)
        with self.devices.scope():
            model, trained = self._compile(name)
        has_memory = model.memory is not None
        ids, steps = self.corpus.ids, options.steps // options.epochs
        train = EpochDataset(make_segments(ids["train"], options, steps, has_memory))
        valid = EpochDataset(make_validation(ids["valid"], options, has_memory))
        return model, trained, train, valid

    def _estimate(self, name):
        """Return the `Estimate` of the training with a value."""
        model, trained, train, _ = self._prepare(name)
        count = min(dry_run.STEPS, self.options.steps)
        seconds = dry_run.fit_seconds(trained, train, self.devices.scope, count)
        steps = {"steps": self.options.steps, "done": 0, "seconds": seconds}
        return dry_run.Estimate.of(model, trained.optimizer, **steps)

    def _train(self, name):
        options = self.options
        model, trained, train, valid = self._prepare(name)
        with self.devices.scope():
            train_data, valid_data = train.data(), valid.data()
        seconds = TrainingSeconds()
        history = trained.fit(
            train_data,
            epochs=options.epochs,
            callbacks=[train.epoch_callback(), seconds, StopOnSignal()],
            validation_data=valid_data,
            shuffle=False,
            verbose=fit_verbosity(),
        ).history
        return {
            "bits_per_character": history["val_bits_per_character"],
            "parameters": model.count_params(),
            "seconds_per_step": sum(seconds.by_epoch) / options.steps,
        }

    def _compile(self, name):
        """Return the model of a value, and the compiled model or wrapper that is trained."""
        options = self.options
        changes = axes(options)[options.axis][name]
        model = trained = build(self.corpus.tokens.vocabulary_size, options, **changes)
        if model.memory is not None:
            trained = StatefulSegments(model, options.batch_size)
        elif name == "auxiliary":
            trained = losses.AuxiliaryLosses(model, options.steps)
        trained.compile(
            adam(options),
            losses.LabelSmoothedCrossentropy(0.1 if name == "label_smoothed" else 0.0),
            weighted_metrics=[self.corpus.bits_per_character()],
            jit_compile=JIT_COMPILE,
        )
        return model, trained

    def _result_path(self, name):
        return self._path(f"{name}.json")

    def _path(self, name):
        return os.path.join(self.options.out, name)


class TrainingSeconds(keras.callbacks.Callback):
    """Measure the steps of each epoch, without the validation after them."""

    def __init__(self):
        super().__init__()
        self.by_epoch = []

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self._ended = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.by_epoch.append(self._ended - self._started)


class StopOnSignal(keras.callbacks.Callback):
    """End training after the batch in which SIGTERM or Ctrl-C arrived."""

    def __init__(self):
        super().__init__()
        self._errors = {
            DeferredSignal(signal.SIGTERM): callbacks.Terminated,
            DeferredSignal(signal.SIGINT): KeyboardInterrupt,
        }

    def on_train_begin(self, logs=None):
        for deferred in self._errors:
            deferred.watch()

    def on_train_batch_end(self, batch, logs=None):
        for deferred, error in self._errors.items():
            if deferred.received is not None:
                raise error

    def on_test_batch_end(self, batch, logs=None):
        self.on_train_batch_end(batch)

    def on_train_end(self, logs=None):
        for deferred in self._errors:
            deferred.stop()
        self.on_train_batch_end(None)


def _read(path):
    remedy = "delete it, and its value is trained again"
    return files.read_object(path, remedy, "bits_per_character", "parameters", "seconds_per_step")


def table(axis, results):
    """Return a Markdown table, the best value first."""
    lines = [
        f"| {axis} | bits per character | parameters | seconds per step |",
        "| --- | --: | --: | --: |",
    ]
    for name, found in sorted(results.items(), key=lambda item: item[1]["bits_per_character"][-1]):
        lines.append(
            f"| `{name}` | {found['bits_per_character'][-1]:.3f} | {found['parameters']:,} "
            f"| {found['seconds_per_step']:.3f} |"
        )
    return lines
