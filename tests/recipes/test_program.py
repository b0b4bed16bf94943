"""What a recipe says when it cannot go on."""

import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf
from other_backend import start_on

from keras_attn.callbacks import Terminated
from recipes import files, program
from recipes.algorithmic import __main__ as algorithmic


def ended(error, capsys):
    """The exit code of a recipe that ends so, and what it says."""

    def run(options, started):
        raise error

    options = SimpleNamespace(seed=0, precision="float32", out="some/out")
    code = program.main("recipes.some", lambda: options, run)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "No space left on device"),
    ],
)
def test_a_full_disk_is_told_with_its_place(error, capsys):
    code, said = ended(error, capsys)
    assert code == 2 and said.startswith("recipes.some: ")
    assert "No space left on device" in said and "--out some/out" in said


@pytest.mark.parametrize("error, expected", [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_a_stop_is_no_fault(error, expected, capsys):
    code, said = ended(error, capsys)
    assert code == expected and "goes on from the last checkpoint" in said


def test_a_directory_is_one_process_s(monkeypatch, tmp_path, capsys):
    """Two that train in it would each take the other's checkpoints and curve for its own."""
    out = tmp_path / "out"
    arguments = ["recipe", "--task", "parity", "--model", "act_rnn", "--out", str(out)]
    monkeypatch.setattr("sys.argv", [*arguments, "--steps", "1", "--hidden-dim", "3"])
    with files.claimed(out):
        assert algorithmic.main() == 2
        assert f"Another process trains in {out}" in capsys.readouterr().err
        assert [path.name for path in out.iterdir()] == [".lock"]
    with files.claimed(out):
        pass


def test_what_nobody_foresaw_is_shown_whole(capsys):
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError("a fault of ours"), capsys)


def test_one_of_several_processes_does_not_wait_for_the_others_to_end():
    """They may be waiting for it; what it ends with is kept."""
    program = """
import atexit, sys, time
from types import SimpleNamespace
from recipes import program

program.LEAVE = 0.1
atexit.register(time.sleep, 600)  # as the backend waits

def run(options, started):
    print("said before", flush=False)
    raise {error}

options = SimpleNamespace(seed=0, precision="float32", out="out", strategy="multi_worker")
sys.exit(program.main("recipes.some", lambda: options, run))
"""
    for error, code in (("SystemExit(143)", 143), ("KeyError('x')", 1)):
        done = start_on("tensorflow", program.format(error=error))
        assert done.returncode == code and "said before" in done.stdout, done.stderr


def test_a_lost_worker_ends_the_process_at_once(monkeypatch, capsys):
    """Not by way of TensorFlow, which would wait for the others."""
    monkeypatch.setattr(program.os, "_exit", sys.exit)
    error = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: task 1")
    with pytest.raises(SystemExit, match="75"):
        ended(error, capsys)
    assert "Start all workers again" in capsys.readouterr().err
