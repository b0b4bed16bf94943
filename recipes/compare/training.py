"""Training of a model with each value of an axis, and each seed."""

import contextlib
import dataclasses
import gc
import glob
import math
import os
import time

import keras

from keras_attn import distribution
from keras_attn.distribution.workers import worker_of_strategy
from keras_attn.memory import StatefulSegments

from ..common import dry_run, files
from ..common.card import provenance
from ..common.epoch_dataset import EpochDataset
from ..common.optimizer import JIT_COMPILE, adam
from ..common.progress import duration, fit_verbosity
from ..common.settings import check_agreement, check_out, check_settings, save_settings
from ..text.corpus import Corpus
from ..text.data import read_text
from ..text.segments import make_segments, make_validation
from . import axes, summary
from .callbacks import StopOnSignal
from .model import PLAIN


def run(options, started):
    comparison = Comparison(options)
    if options.prepare:
        with files.exclusive_directory(options.out):
            comparison.corpus.tokens.save()
        print(f"Tokens: {comparison.corpus.tokens.saved}")
        return
    lines = comparison.dry_run() if options.dry_run else comparison.complete(started)
    if lines is not None:
        print("\n".join(lines))


class Comparison:
    """Training with the values of axes in the directory `options.out`, which can be resumed."""

    def __init__(self, options):
        check_out(options.out)
        self.options = options
        text = read_text(options.data_dir, options.text)
        self._settings = text.identity(options)
        check_settings(self._path("settings.json"), self._settings, options.out)
        self.values = {axis: axes.values(axis, options) for axis in options.axis}
        self._found = {}  # results, by their paths
        self._check_values()
        # Processes can join only before anything is computed.
        self.devices = distribution.strategy(options.devices, **options.mesh_arguments)
        chosen = {name: list(getattr(options, name)) for name in ("axis", "values", "seeds")}
        check_agreement(self.devices, {**self._settings, **chosen})
        # Of several processes only the first one writes.
        self.is_first = worker_of_strategy(self.devices)[0] == 0
        self.corpus = Corpus.load(text, options)
        self.corpus.check_rows(options.batch_size, "train", "valid")

    def _check_values(self):
        known = dict.fromkeys(name for by_name in self.values.values() for name in by_name)
        unknown = [name for name in self.options.values if name not in known]
        if unknown:
            raise ValueError(
                f"--values must be among {', '.join(known)} for the axis "
                f"{' '.join(self.options.axis)}. Received: {', '.join(unknown)}."
            )

    def complete(self, started):
        """Train missing values, and return the tables and a summary.

        None in every process but the first.

        The comparison `started` at that time of `time.monotonic()`.

        Raises:
            ValueError: if another process trains in the directory.
        """
        lock = files.exclusive_directory(self.options.out)
        lines, best = [], []
        with lock if self.is_first else contextlib.nullcontext():
            for axis in self.options.axis:
                summaries = self.train_missing(axis)
                if self.is_first and summaries:
                    lines += self.write(axis, summaries)
                    best.append(f"{axis}, {summary.best(summaries)}")
        if not self.is_first:
            return None
        return [*lines, f"Done in {duration(time.monotonic() - started)}: {'; '.join(best)}."]

    def dry_run(self):
        """Return the lines of a dry run; None in every process but the first."""
        estimates, trained, counted = {}, [], set()
        for axis in self.options.axis:
            for name, results in self._trained(axis).items():
                missing = [seed for seed in self.options.seeds if seed not in results]
                if missing and self._is_chosen(name):
                    path, changes = self._result_path(axis, name, "*"), self.values[axis][name]
                    if path not in counted:  # axes share the plain model
                        estimates[f"{axis} {name}"] = self._estimate(changes, len(missing))
                    counted.add(path)
                elif results:
                    trained.append(f"{axis} {name}")
        if not self.is_first:
            return None
        places = "AXIS/VALUE-SEED.json, and card.json, table.md and curves.png of each axis"
        return dry_run.report(self.options, estimates, places, trained=trained)

    def train_missing(self, axis):
        """Return the `Summary` of each chosen value of an axis, and of those trained before."""
        trained = self._trained(axis)
        for name, results in trained.items():
            for seed in self.options.seeds if self._is_chosen(name) else ():
                if seed not in results:
                    print(f"{axis} {name}, seed {seed}", flush=True)
                    results[seed] = self._train(self.values[axis][name], seed)
                    if self.is_first:
                        self._save(self._result_path(axis, name, seed), results[seed])
        return {
            name: summary.Summary.of(dict(sorted(results.items())))
            for name, results in trained.items()
            if results
        }

    def write(self, axis, summaries):
        """Write card, table and picture of an axis; return the lines that are printed."""
        options, folder = self.options, self._path(axis)
        entries = {name: summary.as_dict() for name, summary in summaries.items()}
        card = {**provenance(options), "axis": axis, "task": self.corpus.name, "results": entries}
        files.write_json(os.path.join(folder, "card.json"), card, indent=None)
        lines = [*summary.table(axis, summaries), "", *summary.sentences(summaries)]
        files.write(os.path.join(folder, "table.md"), "\n".join(lines) + "\n")
        tokens = options.steps * options.batch_size * options.context
        summary.draw(os.path.join(folder, "curves.png"), axis, summaries, tokens)
        return [*lines, f"Table: {folder}/table.md", f"Card:  {folder}/card.json"]

    def _save(self, path, result):
        """Write a result, and the settings and tokens that a resumed comparison shares."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        save_settings(self._path("settings.json"), self._settings)
        self.corpus.tokens.save()
        files.write_json(path, result)

    def _prepare(self, changes, seed):
        """Return the model of a value, the compiled model or wrapper that is trained, and data."""
        options = dataclasses.replace(self.options, seed=seed)
        gc.collect()  # the models before it refer to themselves
        keras.utils.set_random_seed(seed)
        with self.devices.scope():
            model, trained = self._compile(changes)
        has_memory = model.memory is not None
        ids, steps = self.corpus.ids, options.steps // options.epochs
        train = EpochDataset(make_segments(ids["train"], options, steps, has_memory))
        valid = EpochDataset(make_validation(ids["valid"], options, has_memory))
        return model, trained, train, valid

    def _estimate(self, changes, count):
        """Return the `Estimate` of so many trainings with a value."""
        model, trained, train, _ = self._prepare(changes, self.options.seed)
        steps = min(dry_run.STEPS, self.options.steps)
        seconds = dry_run.fit_seconds(trained, train, self.devices.scope, steps)
        steps = {"steps": self.options.steps * count, "done": 0, "seconds": seconds}
        return dry_run.Estimate.of(model, trained.optimizer, **steps)

    def _train(self, changes, seed):
        options = self.options
        model, trained, train, valid = self._prepare(changes, seed)
        with self.devices.scope():
            train_data, valid_data = train.data(), valid.data()
        seconds = dry_run.StepSeconds()
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
            "seconds_per_step": dry_run.seconds_per_step(seconds.seconds),
        }

    def _compile(self, changes):
        """Return the model of a value, and the compiled model or wrapper that is trained."""
        options = self.options
        model = trained = changes.build(self.corpus.tokens.vocabulary_size, options)
        if model.memory is not None:
            trained = StatefulSegments(model, options.batch_size)
        elif changes.wrapper is not None:
            trained = changes.wrapper(model, options.steps)
        trained.compile(
            adam(options),
            changes.loss(),
            weighted_metrics=[self.corpus.bits_per_character()],
            jit_compile=JIT_COMPILE,
        )
        return model, trained

    def _is_chosen(self, name):
        return not self.options.values or name in self.options.values

    def _trained(self, axis):
        """Return a dict of seed to result for each value of an axis, which training completes.

        Files are read once: another process may not have written yet what this one has trained too.
        """
        return {
            name: self._results(self._result_path(axis, name, "*")) for name in self.values[axis]
        }

    def _results(self, pattern):
        if pattern not in self._found:
            prefix, suffix = pattern.split("*")
            paths = glob.glob(f"{glob.escape(prefix)}*{suffix}")
            seeds = {path[len(prefix) : -len(suffix)]: path for path in paths}
            results = {int(s): _read(path) for s, path in seeds.items() if s.isdecimal()}
            self._found[pattern] = results
        return self._found[pattern]

    def _result_path(self, axis, name, seed):
        """Return the path of a result; axes share those of the plain model."""
        is_plain = self.values[axis][name] is PLAIN
        return self._path(f"plain-{seed}.json" if is_plain else f"{axis}/{name}-{seed}.json")

    def _path(self, name):
        return os.path.join(self.options.out, name)


def _read(path):
    remedy = "delete it, and its value is trained again"
    names = "bits_per_character", "parameters", "seconds_per_step"
    result = files.read_object(path, remedy, *names)
    bits = [math.nan if x is None else x for x in result["bits_per_character"]]
    return {**result, "bits_per_character": bits}
