"""A finished run trains no more, and a stopped run trains the epochs that are left."""

import json
import zipfile
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_attn import distribution
from recipes.common.epoch_dataset import EpochDataset
from recipes.common.run import MODEL, TRAINED, TrainingRun


class ExistingRun(TrainingRun):
    """A run of three epochs, of which only the directory matters."""

    def __init__(self, out):
        self.options = SimpleNamespace(out=str(out), epochs=3)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / TRAINED).write_text(json.dumps({"epochs": 3, "steps": 40}))
    with zipfile.ZipFile(tmp_path / MODEL, "w") as file:
        file.writestr("config.json", "{}" * 500)
    return tmp_path


def test_a_run_is_trained_after_all_its_epochs(out):
    assert ExistingRun(out).trained_steps() == 40
    (out / TRAINED).write_text(json.dumps({"epochs": 2, "steps": 30}))
    assert ExistingRun(out).trained_steps() is None


@pytest.mark.parametrize("name", [MODEL, TRAINED])
def test_a_missing_file_means_that_training_resumes(out, name):
    (out / name).unlink()
    assert ExistingRun(out).trained_steps() is None


def test_a_truncated_model_means_that_training_resumes(out):
    content = (out / MODEL).read_bytes()
    (out / MODEL).write_bytes(content[: len(content) // 2])
    assert ExistingRun(out).trained_steps() is None


def test_a_damaged_file_is_reported(out):
    (out / TRAINED).write_text("{")
    with pytest.raises(
        ValueError, match="trained.json is damaged; delete it, and training resumes"
    ):
        ExistingRun(out).trained_steps()


class Rows:
    """Batches of one row."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def batch(self, epoch, index):
        return np.full((1, 1), index + 1.0), np.ones((1, 1))


class SmallRun(TrainingRun):
    """A run of a dense layer with one input and one output."""

    def __init__(self, out, batches=5, epochs=3):
        settings = {"precision": "float32", "checkpoint_steps": 1, "seed": 0}
        self.options = SimpleNamespace(out=str(out), epochs=epochs, **settings)
        self._settings, self.devices = {"recipe": "small"}, distribution.strategy("none")
        self.model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        self.model.compile("sgd", "mse")
        self._batches = batches

    def training_data(self):
        return EpochDataset(Rows(self._batches)), EpochDataset(Rows(2))


@pytest.mark.slow
def test_a_run_is_not_continued_after_a_part_of_an_epoch(tmp_path):
    """Its other batches would never be read."""
    part = SmallRun(tmp_path, batches=2, epochs=1)
    assert part.fit(*part.training_data())
    whole = SmallRun(tmp_path)
    with pytest.raises(
        ValueError, match="ended within an epoch, after 2 steps of 5; give the same"
    ):
        whole.fit(*whole.training_data())


class StopAfter(keras.callbacks.Callback):
    """End training after an epoch, and count the epochs and the ends of training."""

    def __init__(self, epoch):
        super().__init__()
        self._epoch, self.epochs, self.ends = epoch, [], 0

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch is None and batch == 2:
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)
        self.model.stop_training = epoch == self._epoch

    def on_train_end(self, logs=None):
        self.ends += 1


def test_a_run_resumed_within_its_last_epoch_ends_with_it(tmp_path, capsys):
    killed = SmallRun(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        killed.fit(*killed.training_data(), callbacks=[StopAfter(None)])
    assert "Resumed" not in capsys.readouterr().out
    resumed, stop = SmallRun(tmp_path), StopAfter(0)
    assert resumed.fit(*resumed.training_data(), callbacks=[stop])
    assert (stop.epochs, stop.ends) == ([0], 1) and resumed.steps() == 5
    assert "Resumed after step 2 of 15.\n" in capsys.readouterr().out


@pytest.mark.parametrize("warmup, is_longer", [(None, False), (15, False), (16, True)])
def test_a_warm_up_longer_than_the_training_is_reported(tmp_path, capsys, warmup, is_longer):
    run = SmallRun(tmp_path)
    run.options.warmup_steps = warmup
    run.say_start(0, 0, batches=5)
    printed = capsys.readouterr().out
    assert ("warm-up is longer" in printed) == is_longer == ("16, and 15 steps" in printed)
