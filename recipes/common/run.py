"""A training run in a directory, which the same command resumes."""

import contextlib
import json
import os
import time
import zipfile

import keras

from keras_attn import callbacks, distribution
from keras_attn.backend.replicas import whole_model
from keras_attn.callbacks import WithoutTrainEnd
from keras_attn.distribution.workers import worker_of
from keras_attn.files import atomic_file

from . import dry_run, files
from .card import EpochSeconds, History, provenance, read_history, write_card
from .optimizer import JIT_COMPILE
from .progress import duration, fit_verbosity, long_warmup
from .progress import result as result_text
from .settings import check_agreement, check_out, check_settings, save_settings

MODEL = "model.keras"
TRAINED = os.path.join("checkpoint", "trained.json")
STEP_SECONDS = os.path.join("checkpoint", "step_seconds.csv")
FILES = (
    f"settings.json, checkpoint/, {MODEL}, history.csv, tensorboard/, card.json, curve.png "
    "and export/"
)


class TrainingRun:
    """Training, evaluation, export and card of one model in the directory `options.out`.

    A subclass builds `model`, and `training_model` if a wrapper of it is compiled, and reads its
    `corpus` if it has tokens; it defines `training_data()`, the `EpochDataset`s for training and
    for the validation after each epoch, `evaluate()`, which returns a dict of splits and their
    results, and `card_entries()`, a dict of further entries of the card.

    Args:
        options: a `RunOptions`.
        settings: dict that must not change when the run is resumed, as JSON holds it.

    Raises:
        ValueError: if `out` is a file, the run was started with other settings, or the export's
            version exists.
    """

    curve = None  # the metric of history.csv that is drawn beside the losses
    model = training_model = corpus = exported = None

    def __init__(self, options, settings):
        self.options, self._settings = options, settings
        check_out(options.out)
        self._check_settings()
        version = self.path(os.path.join("export", str(options.export_version)))
        if os.path.exists(version):
            raise ValueError(f"The export {version} exists and is not overwritten.")
        # Processes can join only before anything is computed.
        self.devices = distribution.strategy(options.devices, **options.mesh_arguments)
        check_agreement(self.devices, settings)

    def execute(self, started):
        """Train, evaluate and export as far as the backend can, and print a summary.

        A dry run only prints its report.

        Args:
            started: float. The `time.monotonic()` at the start of the program.
        """
        if self.options.dry_run:
            estimates = {"": self.estimate()}
            if worker_of(self.compiled_model)[0] == 0:
                places = FILES if self.corpus is None else f"tokenizer.model, tokens/, {FILES}"
                lines = dry_run.report(self.options, estimates, places, self.data_bytes())
                print("\n".join(lines))
            return
        if getattr(self.options, "prepare", False):
            with files.exclusive_directory(self.options.out):
                self.corpus.tokens.save()
            print(f"Tokens: {self.corpus.tokens.saved}")
            return
        card = self.complete(started)
        if card is not None:
            print("\n".join(self.summary(card)))
        elif worker_of(self.compiled_model)[0] == 0:
            print(
                f"Trained: {self.path(MODEL)}. The same command without --strategy, --mesh and "
                "--shard-parameters and with KERAS_BACKEND=tensorflow, on any one machine, "
                "evaluates it, exports it and writes the card."
            )

    def complete(self, started):
        """Train, evaluate, export and write the card.

        Returns:
            The card, a dict; None on a backend that only trains, and in all but the first process.

        Raises:
            ValueError: if another process trains in the run's directory.
        """
        index, workers = worker_of(self.compiled_model)
        lock = files.exclusive_directory(self.options.out)
        with contextlib.nullcontext() if index > 0 else lock:
            self._check_settings()  # another process may have trained since the start of this one
            keep_compiled_programs(self.path("compilation_cache"))
            steps = self.trained_steps()
            is_trained = steps is not None
            if not is_trained:
                if index == 0 and self._finished_training() is not None and not self._has_model():
                    problem = "is missing or damaged, and is made again from the last checkpoint"
                    print(f"{self.path(MODEL)} {problem}.")
                self.train()
                steps = self._save_model(is_first=index == 0)
            if index > 0:
                return None
            if keras.backend.backend() != "tensorflow":
                return None
            if workers > 1:
                # Only this process continues, and the distributed model would wait for the others.
                self.model = keras.models.load_model(self.path(MODEL))
            elif is_trained:
                trained = keras.models.load_model(self.path(MODEL), compile=False)
                self.model.set_weights(trained.get_weights())
            return self._write_card(started, steps)

    def summary(self, card):
        """Yield the printed lines of a completed run."""
        for split, result in card["results"].items():
            value = "nan" if result["value"] is None else f"{result['value']:.4g}"
            yield f"{split}: {result['metric']} {value} ({result['signature']})"
        yield f"Export: {self.exported}"
        yield f"Card:   {self.path('card.json')}"
        yield (
            f"Done in {duration(card['seconds'])}: {card['task']}, {result_text(card)}; "
            f"{card['parameters']:,} parameters, {card['steps']:,} steps."
        )

    def train(self):
        """Train, or resume training."""
        self.fit(*self.training_data())

    def estimate(self):
        """Return the `Estimate` of the training; the steps that it measures write no file."""
        train, _ = self.training_data()
        measured = self.compiled_model, train, self.scope
        return dry_run.estimate(self, len(train), lambda n: dry_run.fit_seconds(*measured, n))

    def data_bytes(self):
        """Return the size of the data in memory; 0 if batches are made as they are needed."""
        return 0

    def save_settings(self):
        """Write what a resumed run must share, settings and tokens, once a step has succeeded."""
        os.makedirs(self.options.out, exist_ok=True)
        save_settings(self.path("settings.json"), self._settings)
        if self.corpus is not None:
            self.corpus.tokens.save()

    def export(self, **arguments):
        """Write the next version under `export/`."""
        from keras_attn import export  # needs TensorFlow

        directory, version = self.path("export"), self.options.export_version
        self.exported = export.saved_model(self.model, directory, version=version, **arguments)

    def path(self, name):
        return os.path.join(self.options.out, name)

    def scope(self):
        """Return the strategy's scope, in which variables and data are made."""
        return self.devices.scope()

    def check_batch(self, name):
        """Refuse batches that the devices cannot divide, where padding would change the loss.

        The option `name` holds the number of rows.
        """
        devices, rows = self.devices.num_replicas_in_sync, getattr(self.options, name)
        if rows % devices:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{flag} must be a multiple of the {devices} devices here, since this loss cannot "
                f"leave out padding. Received: {flag} {rows}."
            )

    def steps(self):
        """Return the number of steps that the card shows, by default those of the optimizer."""
        return self.optimizer_steps()

    def optimizer_steps(self):
        """Return the number of steps of the model's optimizer."""
        # Not int(): under a strategy the counter is a variable of several parts.
        return int(keras.ops.convert_to_numpy(self.compiled_model.optimizer.iterations))

    @property
    def compiled_model(self):
        return self.model if self.training_model is None else self.training_model

    @property
    def epochs(self):
        return self.options.epochs

    @property
    def jit_compile(self):
        """Value of `jit_compile` for `Model.compile`."""
        return JIT_COMPILE or self.options.jit_compile

    def trained_steps(self):
        """Return the steps of a finished training; None if there is more to train.

        `checkpoint/trained.json` is valid on any backend and for any number of processes.
        """
        finished = self._finished_training()
        is_done = finished is not None and finished["epochs"] >= self.epochs and self._has_model()
        return finished["steps"] if is_done else None

    def _has_model(self):
        return zipfile.is_zipfile(self.path(MODEL))

    def _finished_training(self):
        """Return what `_save_model` has written of a finished training; None if there is none."""
        path = self.path(TRAINED)
        if not os.path.exists(path):
            return None
        remedy = "delete it, and training resumes from the last checkpoint"
        return files.read_object(path, remedy, "epochs", "steps")

    def _check_settings(self):
        check_settings(self.path("settings.json"), self._settings, self.options.out)

    def resume_callback(self):
        """Return the callback that saves and restores the state of training."""
        return callbacks.Resume(self.path("checkpoint"), self.options.checkpoint_steps)

    def fit(self, train, valid, callbacks=(), **arguments):
        """Train, or resume training, to the last epoch; return True if anything was left to train.

        Args:
            train, valid: `EpochDataset`s for training and for the validation after each epoch.
            callbacks: list of callbacks that run before the run's own.
            **arguments: more of the model's `fit`.
        """
        model, resume = self.compiled_model, self.resume_callback()
        epoch, done = resume.restore(model)
        self.check_whole_epochs(epoch, len(train), self.optimizer_steps())
        if self.is_finished(epoch):
            return False
        if worker_of(model)[0] == 0:  # of several processes only one writes
            self.say_start(epoch, done, len(train))
            callbacks = [*callbacks, *self.log_callbacks(epoch, done)]
        if done:
            is_last = epoch + 1 == self.epochs
            rest = [*(callbacks if is_last else [WithoutTrainEnd(callbacks)]), resume]
            self._fit(train.rest(done), valid, epoch, epoch + 1, rest, **arguments)
            epoch += 1
            if model.stop_training and not is_last:  # which another `fit` would reset
                for callback in callbacks:
                    callback.on_train_end()
                return True
        if epoch < self.epochs:
            self._fit(train, valid, epoch, self.epochs, [*callbacks, resume], **arguments)
        return True

    def say_start(self, epoch, done, batches, unit="step"):
        """Print where a resumed run begins, and that a warm-up is longer than the training."""
        steps = self.epochs * batches
        if epoch or done:
            print(f"Resumed after {unit} {epoch * batches + done:,} of {steps:,}.")
        for line in long_warmup(self.options, steps):
            print(line)

    def is_finished(self, epoch):
        """Return True if the epochs before this one have ended the training."""
        return epoch >= self.epochs

    def log_callbacks(self, epoch, done=0):
        """Return callbacks that write settings, seconds, losses and metrics to files.

        Args:
            epoch: int. The epoch at which training begins.
            done: int. Steps of that epoch that are done.
        """
        os.makedirs(self.options.out, exist_ok=True)
        log = History(self.path("history.csv"), first=epoch)
        seconds = EpochSeconds(self.path(STEP_SECONDS), epoch, done)
        callbacks = [AfterFirstStep(self.save_settings), seconds, log]
        if keras.backend.backend() == "tensorflow":  # which Keras writes these files with
            board = keras.callbacks.TensorBoard(self.path("tensorboard"), write_graph=False)
            callbacks.append(board)
        return callbacks

    def check_whole_epochs(self, epoch, batches, steps):
        """Refuse to continue after a part of an epoch, whose other batches would never be read."""
        is_exact = self.options.precision != "mixed_float16"  # whose optimizer leaves out steps
        if epoch and is_exact and steps < epoch * batches:
            raise ValueError(
                f"The training in {self.options.out} ended within an epoch, after {steps} steps of "
                f"{epoch * batches}; give the same --steps, or another --out."
            )

    def _fit(self, train, valid, first, last, callbacks, **arguments):
        with self.scope():
            train_data, valid_data = train.data(), valid.data()
        self.compiled_model.fit(
            train_data,
            initial_epoch=first,
            epochs=last,
            callbacks=[train.epoch_callback(), *callbacks],
            validation_data=valid_data,
            shuffle=False,  # the data have their own order
            verbose=fit_verbosity(),
            **arguments,
        )

    def _save_model(self, is_first):
        """Write the trained model in the first process, and return its number of steps."""
        # Keras makes an optimizer while it saves one, on JAX together with all other processes.
        keras.distribution.set_distribution(None)
        steps = self.steps()
        with whole_model(self.model):  # of which each process may hold a part
            if is_first:
                with atomic_file(self.path(MODEL)) as temporary:
                    self.model.save(temporary)
                done = {"epochs": self.epochs, "steps": steps}
                done["training"] = provenance(self.options)
                files.write(self.path(TRAINED), json.dumps(done, indent=1))
        return steps

    def _write_card(self, started, steps):
        """Evaluate and export the trained model, and write the card."""
        history = self.path("history.csv")
        read_history(history)  # a damaged file is reported before the export
        results, entries = self.evaluate(), self.card_entries()
        self.export()
        return write_card(
            self.options,
            history=history,
            metric=self.curve,
            seed=self.options.seed,
            parameters=self.model.count_params(),
            steps=steps,
            results=results,
            training=self._finished_training().get("training"),
            **entries,
            seconds=round(time.monotonic() - started, 1),
        )


class AfterFirstStep(keras.callbacks.Callback):
    """Call a function after the first step, so that a start that fails leaves no settings."""

    def __init__(self, function):
        super().__init__()
        self._function, self._is_called = function, False

    def on_train_batch_end(self, batch, logs=None):
        if not self._is_called:
            self._function()
            self._is_called = True


def keep_compiled_programs(directory):
    """Keep JAX's compiled programs in a directory, so that a restart finds them.

    By JAX's default a program that takes less than a second to compile is not kept. A directory
    that the user has named stays. Other backends need nothing.
    """
    if keras.backend.backend() != "jax":
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    jax.config.update("jax_compilation_cache_dir", os.path.abspath(directory))
    # JAX looks for the directory once, when it compiles for the first time.
    compilation_cache.reset_cache()
