"""A process that receives SIGTERM saves its state before it ends."""

import os
import signal
import threading

import keras
import numpy as np
import pytest
from marks import slow

from keras_attn.callbacks import Resume, Terminated, resume

ROWS = np.ones((3, 1), "float32")


class At(keras.callbacks.Callback):
    """Sends this process SIGTERM, at the beginning of a batch."""

    def __init__(self, batch, kind="train", times=1):
        super().__init__()
        setattr(self, f"on_{kind}_batch_begin", self._send)
        self.batch, self.times, self.seen = batch, times, []

    def _send(self, batch, logs=None):
        self.seen.append(batch)
        if batch == self.batch:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def told():
    """Handler of SIGTERM before training."""
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append("before"))
    yield received
    signal.signal(signal.SIGTERM, before)


def make_model(run_eagerly=True, **arguments):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=run_eagerly, **arguments)
    return model


def fit(model, *callbacks, epochs=2, **arguments):
    arguments = {"x": ROWS, "y": ROWS, "batch_size": 1, "verbose": 0, **arguments}
    model.fit(**arguments, epochs=epochs, callbacks=list(callbacks))


def test_sigterm_ends_training_after_the_batch_in_progress(tmp_path, told):
    model, at = make_model(), At(1)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated) as ended:
        fit(model, at, Resume(tmp_path))
    assert ended.value.code == 128 + signal.SIGTERM
    assert at.seen == [0, 1] and not told
    assert signal.getsignal(signal.SIGTERM) == handler
    restored = make_model()
    assert Resume(tmp_path).restore(restored) == (0, 2)
    np.testing.assert_array_equal(restored.get_weights()[0], model.get_weights()[0])


@pytest.mark.slow
def test_sigterm_ends_training_after_the_execution_in_progress(tmp_path, told):
    """Two batches in one."""
    with pytest.raises(Terminated):
        fit(make_model(run_eagerly=False, steps_per_execution=2), At(0), Resume(tmp_path))
    assert Resume(tmp_path).restore(make_model()) == (0, 2)


@pytest.mark.parametrize("epochs", [2, slow(1)])
def test_sigterm_in_the_last_batch_completes_the_epoch(tmp_path, told, monkeypatch, epochs):
    monkeypatch.setattr(resume, "GRACE", 600.0)  # however slow the machine
    logged = {}
    log = keras.callbacks.LambdaCallback(on_epoch_end=logged.__setitem__)
    data = {"validation_data": (ROWS, ROWS), "epochs": epochs}
    with pytest.raises(Terminated):
        fit(make_model(), At(2), log, Resume(tmp_path), **data)
    assert Resume(tmp_path).restore(make_model()) == (1, 0)
    assert list(logged) == [0] and set(logged[0]) == {"loss", "val_loss"}


@pytest.mark.slow
def test_sigterm_interrupts_a_long_validation(tmp_path, told, monkeypatch):
    monkeypatch.setattr(resume, "GRACE", 0.0)
    at = At(1, kind="test")
    with pytest.raises(Terminated):
        fit(
            make_model(),
            at,
            Resume(tmp_path, every_steps=2),
            validation_data=(ROWS, ROWS),
            validation_batch_size=1,
        )
    assert at.seen == [0, 1]
    assert Resume(tmp_path).restore(make_model()) == (0, 2)


def test_a_second_sigterm_has_its_previous_effect(tmp_path, told):
    with pytest.raises(Terminated):
        fit(make_model(), At(1, times=2), Resume(tmp_path))
    assert told == ["before"]


@pytest.mark.slow
def test_a_later_fit_without_resume_takes_no_signal_for_the_earlier_one(tmp_path, told):
    model = make_model()
    fails = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs=None: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(model, fails, Resume(tmp_path))
    fit(model, At(1), epochs=1)
    assert told == ["before"]


@pytest.mark.slow
def test_between_two_fits_sigterm_has_its_previous_effect(tmp_path, told):
    model, callback = make_model(), Resume(tmp_path)
    fit(model, callback, epochs=1)
    signal.raise_signal(signal.SIGTERM)
    fit(model, callback, epochs=2, initial_epoch=1)
    assert told == ["before"]
    assert Resume(tmp_path).restore(make_model()) == (2, 0)


def test_an_ignored_signal_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        fit(make_model(), At(1), Resume(tmp_path), epochs=1)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_training_in_another_thread_does_not_watch_signals(tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=fit, args=(make_model(), Resume(tmp_path)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == handler
    assert len(os.listdir(tmp_path)) == 2
