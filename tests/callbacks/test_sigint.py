"""Ctrl-C ends training wherever it is pressed, and the state is saved, as at SIGTERM."""

import signal

import keras
import numpy as np
import pytest

from keras_attn.callbacks import Resume, resume

ROWS = np.ones((3, 1), "float32")


class Pressed(keras.callbacks.Callback):
    """Ctrl-C at the beginning of a batch, where every exception is caught, as Keras does."""

    def __init__(self, kind="train"):
        super().__init__()
        setattr(self, f"on_{kind}_batch_begin", self._press)
        self.seen = []

    def _press(self, batch, logs=None):
        self.seen.append(batch)
        if batch == 1:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                pass


@pytest.fixture
def handler():
    """Python's own, whatever the tests were started with; afterwards it must be there again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    installed = signal.signal(signal.SIGINT, before)
    assert installed is signal.default_int_handler


def make_model(run_eagerly=True):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=run_eagerly)
    return model


def fit(*callbacks, validates=False, model=None):
    model = model or make_model(run_eagerly=not validates)
    data = {"validation_data": (ROWS, ROWS), "validation_batch_size": 1} if validates else {}
    model.fit(ROWS, ROWS, batch_size=1, verbose=0, epochs=2, callbacks=list(callbacks), **data)


def test_ctrl_c_ends_training_after_the_batch_in_progress_and_saves_it(tmp_path, handler):
    pressed, model = Pressed(), make_model()
    sigterm_handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        fit(pressed, Resume(tmp_path), model=model)
    assert pressed.seen == [0, 1] and signal.getsignal(signal.SIGTERM) == sigterm_handler
    restored, again = make_model(), Resume(tmp_path)
    assert again.restore(restored) == (0, 2)
    np.testing.assert_array_equal(restored.get_weights()[0], model.get_weights()[0])
    fit(again, model=restored)  # and the next training is another


@pytest.mark.slow
@pytest.mark.parametrize(
    "grace, seen, position", [(600.0, [0, 1, 2], (1, 0)), (0.0, [0, 1], (0, 2))]
)
def test_ctrl_c_in_validation_waits_for_its_end_unless_it_takes_long(
    tmp_path, handler, monkeypatch, grace, seen, position
):
    monkeypatch.setattr(resume, "GRACE", grace)
    pressed = Pressed("test")
    with pytest.raises(KeyboardInterrupt):
        fit(pressed, Resume(tmp_path, every_steps=2), validates=True)
    assert pressed.seen == seen
    assert Resume(tmp_path).restore(make_model()) == position


def test_a_second_ctrl_c_ends_training_at_once(tmp_path, handler):
    raised = []

    def press(batch, logs=None):
        for _ in range(2):
            try:
                signal.raise_signal(signal.SIGINT)
                raised.append(False)
            except KeyboardInterrupt:
                raised.append(True)

    with pytest.raises(KeyboardInterrupt):
        fit(keras.callbacks.LambdaCallback(on_train_batch_begin=press), Resume(tmp_path))
    assert raised == [False, True]


def test_after_an_error_ctrl_c_raises_keyboard_interrupt(tmp_path, handler):
    fails = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs=None: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(fails, Resume(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_keras_alone_loses_ctrl_c(handler):
    pressed = Pressed()
    fit(pressed)
    assert pressed.seen == [0, 1, 2] * 2


@pytest.mark.slow
def test_a_handler_that_the_program_has_set_is_kept(tmp_path, handler):
    noted = []
    signal.signal(signal.SIGINT, lambda *_: noted.append("pressed"))
    fit(Pressed(), Resume(tmp_path))
    assert noted == ["pressed"] * 2
    signal.signal(signal.SIGINT, handler)


@pytest.mark.slow
def test_an_ignored_signal_stays_ignored(tmp_path, handler):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fit(Pressed(), Resume(tmp_path))
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signal.signal(signal.SIGINT, handler)
