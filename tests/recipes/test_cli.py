"""Messages and exit codes of recipes that end early; files and directories of a run."""

import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf
from other_backend import start_on
from recipe_runs import error_of

from keras_attn.callbacks import Terminated
from recipes.common import cli, files

OPTIONS = SimpleNamespace(
    seed=0, precision="float32", out="some/out", devices="none", dry_run=False
)


def exit_code_and_message(error, capsys):
    """The exit code and message of a recipe that raises an error."""

    def run(options, started):
        raise error

    code = cli.execute("recipes.some", OPTIONS, run)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "No space left on device"),
        RuntimeError("RESOURCE_EXHAUSTED: No space left on device"),
        MemoryError("No space left on device"),
    ],
)
def test_a_full_disk_or_memory_is_reported_with_the_directory(error, capsys):
    code, said = exit_code_and_message(error, capsys)
    assert code == 2 and said.startswith("python -m recipes.some: ")
    assert "No space left on device" in said and "--out some/out" in said


def test_an_error_that_names_its_file_is_not_reported_with_the_directory(capsys):
    result = exit_code_and_message(PermissionError(13, "Permission denied", "data/a.txt"), capsys)
    assert result == (2, "python -m recipes.some: data/a.txt: Permission denied\n")


def test_an_error_without_a_message_is_named(capsys):
    result = exit_code_and_message(MemoryError(), capsys)
    assert result == (2, "python -m recipes.some: MemoryError (--out some/out)\n")


@pytest.mark.parametrize("error, expected", [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_an_interrupted_run_says_that_it_can_be_resumed(error, expected, capsys):
    code, said = exit_code_and_message(error, capsys)
    assert code == expected and "resumes from the last checkpoint" in said


def test_parallel_texts_of_other_names_are_left_to_prepare(tmp_path, capsys):
    (tmp_path / "news.en").write_text("a\n", "utf-8")
    error = error_of(capsys, "translate", "--data-dir", tmp_path)
    assert "which has news.en. `keras-attn prepare` divides two files" in error


def test_a_directory_is_locked_against_a_second_process(tmp_path, capsys):
    """Two processes would take each other's checkpoints and curves for their own."""
    out = tmp_path / "out"
    arguments = ("--task", "parity", "--model", "act_rnn", "--out", out, "--hidden-dim", "3")
    with files.exclusive_directory(out):
        error = error_of(capsys, "algorithmic", *arguments, "--steps", "1")
        assert f"Another process works in {out}" in error
        assert [path.name for path in out.iterdir()] == [".lock"]
    with files.exclusive_directory(out):
        pass


def test_an_unexpected_error_keeps_its_traceback(capsys):
    with pytest.raises(ZeroDivisionError):
        exit_code_and_message(ZeroDivisionError("a fault of ours"), capsys)


@pytest.mark.slow
def test_one_of_several_processes_does_not_wait_for_the_others_at_its_end():
    """They may be waiting for it; what it ends with is kept."""
    program = """
import atexit, sys, time
from types import SimpleNamespace
from recipes.common import cli

cli.EXIT_DELAY = 0.1
atexit.register(time.sleep, 600)  # as the backend waits

def run(options, started):
    print("said before", flush=False)
    raise {error}

options = SimpleNamespace(
    seed=0, precision="float32", out="out", devices="multi_worker", dry_run=False
)
sys.exit(cli.execute("recipes.some", options, run))
"""
    for error, code in (("SystemExit(143)", 143), ("KeyError('x')", 1)):
        done = start_on("tensorflow", program.format(error=error))
        assert done.returncode == code and "said before" in done.stdout, done.stderr


def test_a_lost_worker_ends_the_process_at_once(monkeypatch, capsys):
    """Not by way of TensorFlow, which would wait for the others."""
    monkeypatch.setattr(cli.os, "_exit", sys.exit)
    error = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: task 1")
    with pytest.raises(SystemExit, match="75"):
        exit_code_and_message(error, capsys)
    assert "Start all workers again" in capsys.readouterr().err
