"""Checkpoints are written beside the training."""

import errno
import os
import resource
import signal
import threading

import keras
import numpy as np
import pytest

from keras_attn.callbacks import Resume, Terminated, checkpoints
from keras_attn.callbacks.resume import BackgroundWriter, wait_for_writes


def test_the_error_of_the_thread_is_raised_once_by_the_next_call(tmp_path):
    writer = BackgroundWriter(tmp_path)
    writer.start(os.mkdir, tmp_path)
    with pytest.raises(FileExistsError):
        writer.join()
    writer.check()
    writer.start(os.mkdir, tmp_path / "new")
    writer.join()
    assert (tmp_path / "new").is_dir()
    writer.start(os.rmdir, tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        writer.start(os.mkdir, tmp_path / "later")
    assert not (tmp_path / "later").exists()


def test_only_the_threads_of_a_directory_are_waited_for(tmp_path):
    go, done = threading.Event(), []
    writer = BackgroundWriter(tmp_path / "one")
    writer.start(lambda: (go.wait(20), done.append(1)))
    wait_for_writes(tmp_path / "two")
    assert not done
    go.set()
    wait_for_writes()
    assert done == [1]


def test_an_error_that_nothing_asks_for_is_printed_once(tmp_path, capsys):
    writer = BackgroundWriter(tmp_path)
    writer.start(os.rmdir, tmp_path / "none")
    for _ in range(2):
        wait_for_writes(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("FileNotFoundError: ") and line.endswith("none'")
    writer.check()


def make_model(width=1):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(width)])
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    return model


def fit(model, *callbacks, steps=4):
    x = np.ones((steps, 1))
    model.fit(x, x, batch_size=1, shuffle=False, verbose=0, callbacks=list(callbacks))


class Blocked:
    """Writes of checkpoints that wait, and the weight of each when it is written."""

    def __init__(self, monkeypatch):
        self.may_write, self.begun, self.written = threading.Event(), threading.Event(), []
        write = checkpoints.write_arrays

        def wait(path, arrays, *more, **numbers):
            self.begun.set()
            assert self.may_write.wait(20)
            self.written.append((numbers["batch"], arrays[0].item()))
            write(path, arrays, *more, **numbers)

        monkeypatch.setattr(checkpoints, "write_arrays", wait)


def test_steps_go_on_while_a_checkpoint_is_written_which_holds_the_state_of_its_step(
    tmp_path, monkeypatch
):
    blocked, weights = Blocked(monkeypatch), []

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights.append(float(self.model.get_weights()[0][0, 0]))
            if batch == 1:
                assert blocked.begun.wait(20)
            if batch == 2:  # a step has been taken meanwhile
                assert not blocked.written
                blocked.may_write.set()

    fit(make_model(), Resume(tmp_path, every_steps=2, keep=9), Record(), steps=5)
    assert blocked.written == [(2, weights[1]), (4, weights[3]), (0, weights[4])]
    assert len(set(weights)) == 5


def test_a_terminated_run_ends_when_all_is_written(tmp_path, monkeypatch):
    blocked = Blocked(monkeypatch)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:  # the second checkpoint waits for the first
                signal.raise_signal(signal.SIGTERM)
                threading.Timer(0.1, blocked.may_write.set).start()

    with pytest.raises(Terminated):
        fit(make_model(), Stop(), Resume(tmp_path, every_steps=2))
    assert [batch for batch, _ in blocked.written] == [2, 3]
    assert Resume(tmp_path).restore(make_model()) == (0, 3)


def test_a_run_that_an_error_ends_leaves_the_checkpoint_to_be_completed(tmp_path, monkeypatch):
    blocked = Blocked(monkeypatch)

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                threading.Timer(0.1, blocked.may_write.set).start()
                raise RuntimeError("not a number")

    with pytest.raises(RuntimeError, match="not a number"):
        fit(make_model(), Resume(tmp_path, every_steps=2), Fail())
    assert Resume(tmp_path).restore(make_model()) == (0, 2)


def test_a_full_disk_ends_the_training_and_keeps_the_checkpoint_before(tmp_path):
    """A real limit, met in the thread; the training process raises one sentence."""
    model = make_model(width=150_000)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGTERM)

    class Fill(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                wait_for_writes(tmp_path)
                resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))

    x, y = np.ones((3, 1)), np.ones((3, 150_000), "float32")
    try:
        with pytest.raises(
            OSError, match="write checkpoint-00000002.npz.*too large; earl"
        ) as error:
            model.fit(
                x, y, batch_size=1, verbose=0, callbacks=[Fill(), Resume(tmp_path, every_steps=1)]
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG and str(tmp_path) in str(error.value)
    assert signal.getsignal(signal.SIGTERM) == handler
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000001.npz"]
    assert Resume(tmp_path).restore(make_model(width=150_000)) == (0, 1)
