"""Files that decide whether a run is trained, and their damage."""

import json
import zipfile
from types import SimpleNamespace

import pytest

from recipes.card import read_history
from recipes.run import MODEL, TRAINED, TrainingRun


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


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "epoch,loss\n0\n", "epoch,loss\n0,1,2\n"])
def test_a_damaged_history_is_reported(tmp_path, text):
    path = tmp_path / "history.csv"
    assert read_history(path) == []
    path.write_text("epoch,loss,val\n0,1.5,\n")
    assert read_history(path) == [{"epoch": 0, "loss": 1.5, "val": None}]
    path.write_text(text)
    with pytest.raises(ValueError, match="history.csv is damaged; delete it"):
        read_history(path)
