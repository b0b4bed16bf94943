"""When a run counts as trained to its end."""

import json
import zipfile
from types import SimpleNamespace

import pytest

from recipes.card import read_history
from recipes.run import MODEL, TRAINED, Run


class Trained(Run):
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


def test_trained_is_what_was_kept_whole_after_as_many_epochs(out):
    assert Trained(out)._trained_steps() == 40
    (out / TRAINED).write_text(json.dumps({"epochs": 2, "steps": 30}))
    assert Trained(out)._trained_steps() is None


@pytest.mark.parametrize("name", [MODEL, TRAINED])
def test_what_is_gone_is_not_trained(out, name):
    (out / name).unlink()
    assert Trained(out)._trained_steps() is None


def test_a_model_that_is_cut_off_is_not_trained(out):
    content = (out / MODEL).read_bytes()
    (out / MODEL).write_bytes(content[: len(content) // 2])
    assert Trained(out)._trained_steps() is None


def test_a_damaged_file_is_told(out):
    (out / TRAINED).write_text("{")
    with pytest.raises(
        ValueError, match="trained.json is damaged; delete it, and training goes on"
    ):
        Trained(out)._trained_steps()


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "epoch,loss\n0\n", "epoch,loss\n0,1,2\n"])
def test_a_damaged_history_is_told(tmp_path, text):
    path = tmp_path / "history.csv"
    assert read_history(path) == []
    path.write_text("epoch,loss,val\n0,1.5,\n")
    assert read_history(path) == [{"epoch": 0, "loss": 1.5, "val": None}]
    path.write_text(text)
    with pytest.raises(ValueError, match="history.csv is damaged; delete it"):
        read_history(path)
