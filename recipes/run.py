"""What every run is: a directory that a later run with the same options continues."""

import contextlib
import json
import os
import time
import zipfile

import keras

from keras_attn import callbacks, distribution
from keras_attn.distribution.workers import worker_of
from keras_attn.ops.atomic_files import atomic_file

from . import files
from .card import EpochSeconds, cut_history, read_history, write_card
from .options import devices_of
from .settings import check_agreement, check_out, check_settings, save_settings
from .text.tokens import FILE_NAME

MODEL = "model.keras"
TRAINED = os.path.join("checkpoint", "trained.json")


class Run:
    """A run in the directory `options.out`.

    A subclass makes `model`, and `trained` if another is compiled in its place, and has `train()`;
    `evaluate()`, which gives a dict of splits and their results; `export()`; and `facts()`, a dict
    of what else the card tells.

    Args:
        options: with `out`, `seed`, `strategy`, `checkpoint_steps` and `export_version`.
        settings: dict of what must not change from one start to the next.

    Raises:
        ValueError: if `out` is a file, the run was started with other settings, or the export's
            version exists.
    """

    curve = None  # the metric of history.csv that is drawn beside the losses

    def __init__(self, options, settings):
        self.options = options
        self.model = self.trained = None
        self._settings = settings
        self.exported = None
        check_out(options.out)
        check_settings(self.path("settings.json"), settings, options.out)
        version = self.path(os.path.join("export", str(options.export_version)))
        if os.path.exists(version):
            raise ValueError(f"The export {version} exists and is not overwritten.")
        # Before anything is computed, which is when processes can still join.
        self.devices = distribution.strategy(devices_of(options))
        check_agreement(self.devices, settings)

    def begin(self):
        """Keeps what a later run must have in common, once a step has shown that it works."""
        os.makedirs(self.options.out, exist_ok=True)
        save_settings(self.path("settings.json"), self._settings)

    def complete(self, started):
        """Trains, evaluates, exports and writes the card.

        Args:
            started: when the run began, by `time.monotonic()`.

        Returns:
            The card, a dict; None on a backend that only trains, and in all processes but the first.

        Raises:
            ValueError: if another process trains in the run's directory.
        """
        index, workers = worker_of(self.compiled())
        with contextlib.nullcontext() if index > 0 else files.claimed(self.options.out):
            steps = self._trained_steps()
            is_trained = steps is not None
            if not is_trained:
                self.train()
            if index > 0:
                return None
            if not is_trained:
                steps = self._save()
            if keras.backend.backend() != "tensorflow":
                return None
            if workers > 1:
                # What follows is for this process alone, and the model would wait for the others.
                self.model = keras.models.load_model(self.path(MODEL))
            elif is_trained:
                trained = keras.models.load_model(self.path(MODEL), compile=False)
                self.model.set_weights(trained.get_weights())
            return self._card(started, steps)

    def _trained_steps(self):
        """How many steps a finished training had; None if there is more to train.

        By that file it does not matter where the training was, on which backend, in how many
        processes.
        """
        path, model = self.path(TRAINED), self.path(MODEL)
        if not os.path.exists(path):
            return None
        if not zipfile.is_zipfile(model):
            print(f"{model} is missing or damaged, and is made again from the last checkpoint.")
            return None
        remedy = "delete it, and training goes on from the last checkpoint"
        found = files.read_object(path, remedy, "epochs", "steps")
        return found["steps"] if found["epochs"] >= self.epochs else None

    def _save(self):
        """Keeps the trained model, and gives its steps."""
        # Keras makes an optimizer while it saves one, on JAX together with all other processes.
        keras.distribution.set_distribution(None)
        with atomic_file(self.path(MODEL)) as temporary:
            self.model.save(temporary)
        steps = self.steps()
        files.write(self.path(TRAINED), json.dumps({"epochs": self.epochs, "steps": steps}))
        return steps

    def _card(self, started, steps):
        """Evaluates and exports the trained model, and writes the card."""
        read_history(self.path("history.csv"))  # if it is damaged, nothing is exported
        results = self.evaluate()
        facts = self.facts()
        self.export()
        return write_card(
            self.options.out,
            history=self.path("history.csv"),
            metric=self.curve,
            seed=self.options.seed,
            parameters=self.model.count_params(),
            options=vars(self.options),
            steps=steps,
            results=results,
            **facts,
            seconds=round(time.monotonic() - started, 1),
        )

    def finish(self, started):
        """Goes as far as it is asked to and the backend can, and prints what came of it."""
        if getattr(self.options, "prepare", False):
            with files.claimed(self.options.out):
                self.corpus.tokens.save()
            print(f"Tokens: {self.path(FILE_NAME)}")
            return
        card = self.complete(started)
        if card is not None:
            print("\n".join(self.report(card)))
        elif worker_of(self.compiled())[0] == 0:
            print(
                f"Trained: {self.path(MODEL)}. The same command with KERAS_BACKEND=tensorflow, on "
                "any one machine, evaluates it, exports it and writes the card."
            )

    def report(self, card):
        """What is printed of a run that has come to its end, line by line."""
        for split, result in card["results"].items():
            yield f"{split}: {result['metric']} {result['value']:.4g} ({result['signature']})"
        yield f"Export: {self.exported}"
        yield f"Card:   {self.path('card.json')}"

    def path(self, name):
        return os.path.join(self.options.out, name)

    def scope(self):
        """Where variables and data are to be made, for `--strategy`."""
        return self.devices.scope()

    def check_shared(self, name):
        """Refuses batches of so many rows that the devices cannot share, where padding would count.

        Args:
            name: str. The option, which has the number.
        """
        devices, rows = self.devices.num_replicas_in_sync, getattr(self.options, name)
        if rows % devices:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{option} must be a multiple of the {devices} devices here, since what is "
                f"learned knows no padding. Received: {option} {rows}."
            )

    def steps(self):
        """How many steps the model was trained for."""
        # Not int(): under a strategy the counter is a variable of several parts.
        return int(keras.ops.convert_to_numpy(self.compiled().optimizer.iterations))

    def compiled(self):
        """The model that is compiled."""
        return self.model if self.trained is None else self.trained

    def checkpoints(self):
        """The callback that saves the state of training, and restores it."""
        return callbacks.Resume(self.path("checkpoint"), self.options.checkpoint_steps)

    @property
    def epochs(self):
        """How many epochs the whole training has."""
        return self.options.epochs

    def fit(self, train, valid, callbacks=(), **arguments):
        """Trains, or goes on training, to the last epoch.

        Args:
            train, valid: the `EpochDataset` to learn from, and to be tested on after each.
            callbacks: list of those that come before the run's own.
            **arguments: more of the model's `fit`.

        Returns:
            Whether there was anything left to train.
        """
        model, resume = self.compiled(), self.checkpoints()
        epoch, done = resume.restore(model)
        is_left = epoch < self.epochs
        if worker_of(model)[0] == 0:  # of several processes only one writes
            callbacks = [*callbacks, *self.logs(epoch, done)]
        if done:
            goes_on = epoch + 1 < self.epochs
            rest = [Unfinished(callbacks)] if goes_on else callbacks
            self._fit(
                model, train.rest(done), valid, epoch, epoch + 1, [*rest, resume], **arguments
            )
            epoch += 1
        if epoch < self.epochs:
            self._fit(model, train, valid, epoch, self.epochs, [*callbacks, resume], **arguments)
        return is_left

    def _fit(self, model, train, valid, first, last, callbacks, **arguments):
        with self.scope():
            train_data, valid_data = train.data(), valid.data()
        model.fit(
            train_data,
            initial_epoch=first,
            epochs=last,
            callbacks=[train.following(), *callbacks],
            validation_data=valid_data,
            shuffle=False,  # the order is the data's own
            verbose=1 if os.isatty(1) else 2,
            **arguments,
        )

    def logs(self, epoch, done=0):
        """Callbacks that begin the run, and write seconds, losses and metrics to files."""
        os.makedirs(self.options.out, exist_ok=True)
        history = self.path("history.csv")
        cut_history(history, epoch)
        callbacks = [
            Begin(self),
            EpochSeconds(),
            keras.callbacks.CSVLogger(history, append=epoch + done > 0),
        ]
        if keras.backend.backend() == "tensorflow":  # which Keras writes these files with
            board = keras.callbacks.TensorBoard(self.path("tensorboard"), write_graph=False)
            callbacks.append(board)
        return callbacks


class Unfinished(keras.callbacks.CallbackList):
    """Callbacks of the rest of an epoch, after which training goes on: none hears that it ended."""

    def on_train_end(self, logs=None):
        pass


class Begin(keras.callbacks.Callback):
    """Begins a run after its first step; a start that fails before it leaves no settings."""

    def __init__(self, run):
        super().__init__()
        self._run, self._begun = run, False

    def on_train_batch_end(self, batch, logs=None):
        if not self._begun:
            self._run.begin()
            self._begun = True
