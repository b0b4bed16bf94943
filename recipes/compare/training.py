"""Trains with each value of an axis, and writes what came of it."""

import contextlib
import json
import os
import signal
import time

import keras

from keras_attn import callbacks, distribution, losses, text
from keras_attn.callbacks.deferred_signal import DeferredSignal
from keras_attn.distribution.workers import worker_of_strategy
from keras_attn.memory import StatefulSegments

from .. import files
from ..curves import draw_curves
from ..epochs import EpochDataset
from ..optimizer import COMPILED, adam
from ..options import devices_of
from ..provenance import command_line, hardware, versions
from ..settings import check_agreement, check_out, check_settings, save_settings
from ..text.batches import EndlessSegments, Windows
from ..text.corpus import Corpus
from ..text.data import read_text
from .axes import axes, build
from .options import settings


class Comparison:
    """The values of an axis in the directory `options.out`, which a later start goes on with."""

    def __init__(self, options):
        check_out(options.out)
        name, splits = read_text(options.data_dir, options.text)
        self._settings = settings(options, (name, splits))
        check_settings(self._path(options, "settings.json"), self._settings, options.out)
        known = axes(options)[options.axis]
        chosen = options.values or known
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise ValueError(
                f"--values must be among {', '.join(known)} for the axis {options.axis}. "
                f"Received: {', '.join(unknown)}."
            )
        # Before anything is computed, which is when processes can still join.
        self.devices = distribution.strategy(devices_of(options))
        check_agreement(self.devices, {**self._settings, "values": list(chosen)})
        self.is_first = worker_of_strategy(self.devices)[0] == 0  # of several processes only one writes
        self.options = options
        self.names = [
            name for name in known if name in chosen or os.path.exists(self._result(name))
        ]
        self.corpus = Corpus.of(name, splits, options, options.out)
        self.corpus.check_rows(options.batch_size, "train", "valid")

    def complete(self):
        """Trains what is missing, and gives the table, line by line; None in all processes but the
        first.

        Raises:
            ValueError: if another process trains in the directory.
        """
        with files.claimed(self.options.out) if self.is_first else contextlib.nullcontext():
            results = self.run()
            return self.write(results) if self.is_first else None

    def run(self):
        """The results of the values that are asked for, and of those found before."""
        paths = {name: self._result(name) for name in self.names}
        results = {name: _read(path) for name, path in paths.items() if os.path.exists(path)}
        for name in self.names:
            if name not in results:
                print(name, flush=True)
                results[name] = self._train(name)
                if self.is_first:
                    self._keep(name, results[name])
        return {name: results[name] for name in self.names}

    def write(self, results):
        """The card, the table and the curves of some results."""
        options = self.options
        card = {
            "command": command_line(),
            "hardware": hardware(),
            "versions": versions("keras_attn", "keras", "tensorflow", "numpy"),
            "task": self.corpus.name,
            "options": vars(options),
            "results": results,
        }
        files.write(self._path(options, "card.json"), json.dumps(card, indent=1))
        lines = table(options.axis, results)
        files.write(self._path(options, "table.md"), "\n".join(lines) + "\n")
        curves = {name: found["bits_per_character"] for name, found in results.items()}
        label = "bits per character, validation"
        draw_curves(self._path(options, "curves.png"), curves, label, options.axis)
        return lines

    def _keep(self, name, result):
        """Writes a result, and what a later start must have in common with it."""
        options = self.options
        os.makedirs(options.out, exist_ok=True)
        save_settings(self._path(options, "settings.json"), self._settings)
        self.corpus.tokens.save()
        files.write(self._result(name), json.dumps(result, indent=1))

    def _train(self, name):
        options = self.options
        keras.utils.set_random_seed(options.seed)
        with self.devices.scope():
            model, trained = self._model(name)
            remembers = model.memory is not None
            batches = EndlessSegments(
                self._segments("train"), options.steps // options.epochs, remembers, options.seed
            )
            train, valid = EpochDataset(batches), EpochDataset(self._validation(remembers))
            train_data, valid_data = train.data(), valid.data()
        seconds = Seconds()
        history = trained.fit(
            train_data,
            epochs=options.epochs,
            callbacks=[train.following(), seconds, Stop()],
            validation_data=valid_data,
            shuffle=False,
            verbose=2,
        ).history
        return {
            "bits_per_character": history["val_bits_per_character"],
            "parameters": model.count_params(),
            "seconds_per_step": sum(seconds.found) / options.steps,
        }

    def _model(self, name):
        """The model of a value, and what of it is compiled."""
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
            jit_compile=COMPILED,
        )
        return model, trained

    def _segments(self, split, most=None):
        ids = self.corpus.ids[split][:most]
        return text.SegmentStreams(ids, self.options.batch_size, self.options.context)

    def _validation(self, remembers):
        options = self.options
        most = max(options.valid_tokens, options.batch_size + 1)
        if remembers:
            segments = self._segments("valid", most)
            return EndlessSegments(segments, len(segments), remembers, options.seed)
        ids = self.corpus.ids["valid"][:most]
        return Windows(ids, options.context, options.context, options.batch_size)

    def _result(self, name):
        """Where the result of a value is kept."""
        return self._path(self.options, f"{name}.json")

    @staticmethod
    def _path(options, name):
        return os.path.join(options.out, name)


class Seconds(keras.callbacks.Callback):
    """How long the steps of each epoch took, without the validation after them."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self._ended = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.found.append(self._ended - self._started)


class Stop(keras.callbacks.Callback):
    """Ends training after the batch in which the process was told to end, or Ctrl-C was pressed."""

    def __init__(self):
        super().__init__()
        self._ends = {
            DeferredSignal(signal.SIGTERM): callbacks.Terminated,
            DeferredSignal(signal.SIGINT): KeyboardInterrupt,
        }

    def on_train_begin(self, logs=None):
        for kept in self._ends:
            kept.watch()

    def on_train_batch_end(self, batch, logs=None):
        for kept, end in self._ends.items():
            if kept.received is not None:
                raise end

    def on_test_batch_end(self, batch, logs=None):
        self.on_train_batch_end(batch)

    def on_train_end(self, logs=None):
        for kept in self._ends:
            kept.stop()
        self.on_train_batch_end(None)


def _read(path):
    remedy = "delete it, and its value is trained again"
    return files.read_object(path, remedy, "bits_per_character", "parameters", "seconds_per_step")


def table(axis, results):
    """Markdown, the best value first."""
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
