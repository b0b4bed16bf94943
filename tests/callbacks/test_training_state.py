"""Processes that share state end alike."""

import pytest

from keras_attn.callbacks import Resume, training_state
from keras_attn.callbacks.checkpoints import Checkpoints
from keras_attn.callbacks.training_state import raise_in_all_processes


@pytest.fixture
def other(monkeypatch):
    """Let another process fail or not; return what each exchange has told it."""
    told = []

    def start(fails):
        def numbers_of_processes(number):
            told.append(number)
            return [number, fails]

        monkeypatch.setattr(training_state, "numbers_of_processes", numbers_of_processes)
        return told

    return start


@pytest.mark.parametrize("error", [ValueError, PermissionError, KeyError])
def test_an_error_of_one_process_is_raised_in_all(other, error):
    told = other(fails=False)
    with pytest.raises(error, match="here"):
        with raise_in_all_processes():
            raise error("here")
    assert told == [True]
    other(fails=True)
    with pytest.raises(ValueError, match="Another process cannot use the checkpoints"):
        with raise_in_all_processes():
            pass


def test_a_process_that_lacks_the_files_of_others_tells_them(other, monkeypatch, tmp_path):
    told = other(fails=False)
    monkeypatch.setattr("keras_attn.callbacks.resume.numbers_of_processes", lambda n: [n, 3])
    resume = Resume(tmp_path)
    resume._checkpoints = Checkpoints(tmp_path)
    with pytest.raises(ValueError, match=r"must see the same files.*newest checkpoints \[5, 3\]"):
        resume._agreed(5)
    assert told == [True]
