"""A killed run goes on as if it had not been killed."""

import functools
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.callbacks import Resume
from keras_attn.callbacks.training_state import write_arrays
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity
from keras_attn.optimizers import Noam


def make_model(width=4, **arguments):
    """Return a compiled model, eager by default: a trace takes longer than the few steps here."""
    model = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Embedding(7, width),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(7),
        ]
    )
    optimizer = keras.optimizers.Adam(Noam.from_peak(0.1, 10))
    metrics = ["accuracy", Perplexity()]
    arguments = {"metrics": metrics, "run_eagerly": True, **arguments}
    model.compile(optimizer, LabelSmoothedCrossentropy(0.1), **arguments)
    return model


class Interrupt(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            raise KeyboardInterrupt


class Losses(keras.callbacks.Callback):
    """Record the logs of every epoch, by epoch."""

    def __init__(self, logged):
        super().__init__()
        self.logged = logged

    def on_epoch_end(self, epoch, logs=None):
        self.logged[epoch] = dict(logs)


BATCH, BATCHES = 4, 3


def data(epoch, first=0):
    """The batches of an epoch from the first one on."""
    tokens = np.random.default_rng(epoch).integers(1, 7, (BATCH * BATCHES, 5))
    return tokens[BATCH * first :]


def fit(model, callbacks, **arguments):
    arguments = {"batch_size": BATCH, "verbose": 0, "shuffle": False, **arguments}
    return model.fit(data(0), data(0), callbacks=callbacks, **arguments)


def train(model, callbacks, epoch=0, batch=0):
    """Train two epochs, each with data of its own."""
    for number in range(epoch, 2):
        x = data(number, batch if number == epoch else 0)
        arguments = {"batch_size": BATCH, "verbose": 0, "shuffle": False, "callbacks": callbacks}
        model.fit(x, x, initial_epoch=number, epochs=number + 1, **arguments)


def state(model):
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def assert_equal_states(model, expected):
    for array, value in zip(state(model), expected, strict=True):
        np.testing.assert_array_equal(array, value)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_killed_and_resumed_equals_straight(tmp_path, policy):
    """Weights, moments, step and dropout: nothing differs in the end."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(1)
    straight = make_model()
    fit(straight, [], epochs=2)

    keras.utils.set_random_seed(1)
    killed = make_model()
    resume = Resume(tmp_path)
    assert resume.initial_epoch(killed) == 0
    with pytest.raises(KeyboardInterrupt):
        fit(killed, [resume, Interrupt(step=4)], epochs=2)  # three steps make an epoch

    keras.utils.set_random_seed(2)
    resumed = make_model()
    resume = Resume(tmp_path)
    assert resume.initial_epoch(resumed) == 1
    fit(resumed, [resume], epochs=2, initial_epoch=1)
    assert_equal_states(resumed, state(straight))
    assert Resume(tmp_path).initial_epoch(make_model()) == 2


def test_killed_within_an_epoch_equals_straight(tmp_path):
    """Bit-equal weights; and what is logged is that of whole epochs."""
    keras.utils.set_random_seed(1)
    straight, expected = make_model(), {}
    train(straight, [Losses(expected)])

    keras.utils.set_random_seed(1)
    killed, logged = make_model(), {}
    with pytest.raises(KeyboardInterrupt):
        train(killed, [Losses(logged), Resume(tmp_path, every_steps=1), Interrupt(step=4)])
    keras.utils.set_random_seed(2)
    resumed, resume = make_model(), Resume(tmp_path, every_steps=1)
    assert resume.restore(resumed) == (1, 1)
    train(resumed, [Losses(logged), resume], 1, 1)
    assert_equal_states(resumed, state(straight))
    assert logged == expected
    assert Resume(tmp_path).restore(make_model()) == (2, 0)


@pytest.mark.slow
def test_resumes_with_several_steps_per_execution(tmp_path):
    """Seven batches, two at a time: saved after 2, 4 and 6; the sums are added in another order."""
    x = np.random.default_rng(0).integers(1, 7, (28, 5))
    common = {"batch_size": 4, "verbose": 0, "shuffle": False}
    options = {"run_eagerly": False, "jit_compile": False, "steps_per_execution": 2}
    make = functools.partial(make_model, **options)
    keras.utils.set_random_seed(1)
    straight = make()
    expected = straight.fit(x, x, **common).history
    keras.utils.set_random_seed(1)
    killed, resume = make(), Resume(tmp_path, every_steps=3)
    with pytest.raises(KeyboardInterrupt):
        killed.fit(x, x, **common, callbacks=[resume, Interrupt(step=6)])
    resumed, resume = make(), Resume(tmp_path, every_steps=3)
    assert resume.restore(resumed) == (0, 4)
    history = resumed.fit(x[16:], x[16:], **common, callbacks=[resume]).history
    assert_equal_states(resumed, state(straight))
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, rel=1e-6)


@pytest.mark.slow
def test_initial_epoch_repeats_the_unfinished_epoch(tmp_path):
    """For data that cannot begin in the middle: the state is that of the last batch saved."""
    model = make_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, [Resume(tmp_path, every_steps=2), Interrupt(step=5)], epochs=4)
    expected = state(model)
    resumed, resume = make_model(), Resume(tmp_path, every_steps=2)
    assert resume.initial_epoch(resumed) == 1
    assert_equal_states(resumed, expected)  # saved after step 5: the second of the second epoch
    history = fit(resumed, [resume], epochs=2, initial_epoch=1).history
    assert resume.restore(resumed) == (2, 0)
    again = make_model()
    again.optimizer.build(again.trainable_variables)
    for variable, value in zip(
        (*again.variables, *again.optimizer.variables), expected, strict=True
    ):
        variable.assign(value)
    assert fit(again, [], epochs=2, initial_epoch=1).history == history  # nothing was carried over


@pytest.mark.slow
def test_resumes_data_of_unknown_cardinality(tmp_path):
    """All batches may then be done without the epoch's end."""
    x = data(0)

    def batches():
        for row in range(0, len(x), BATCH):
            yield x[row : row + BATCH], x[row : row + BATCH]

    model = make_model()
    resume = Resume(tmp_path, every_steps=3)
    stop = Interrupt(3)
    stop.on_epoch_end = lambda *_: stop.on_train_batch_begin(0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches(), verbose=0, callbacks=[stop, resume])
    assert Resume(tmp_path).restore(make_model()) == (0, 3)


@pytest.fixture(scope="module")
def first_checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    fit(make_model(), [Resume(folder)], epochs=1)
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def saved(first_checkpoint, tmp_path):
    """A checkpoint after an epoch, alone in the test's folder."""
    return Path(shutil.copy(first_checkpoint, tmp_path))


def test_training_refuses_a_directory_whose_checkpoints_were_not_restored(tmp_path, saved):
    before = saved.read_bytes()
    with pytest.raises(ValueError, match="has checkpoints.*call `restore`.*checkpoint-00000001"):
        fit(make_model(), [Resume(tmp_path)], epochs=1)
    assert saved.read_bytes() == before


def test_the_file_of_an_earlier_version_is_read(tmp_path, saved):
    """It had one, of the same arrays, without a place in the epoch."""
    model = make_model()
    Resume(tmp_path).restore(model)
    os.remove(saved)
    write_arrays(str(tmp_path / "resume.npz"), state(model), epoch=1)
    resumed, resume = make_model(), Resume(tmp_path, keep=1)
    assert resume.restore(resumed) == (1, 0)
    assert_equal_states(resumed, state(model))
    fit(resumed, [resume], initial_epoch=1, epochs=2)
    assert os.listdir(tmp_path) == ["checkpoint-00000001.npz"]
    assert Resume(tmp_path).restore(make_model()) == (2, 0)


def test_any_changed_byte_is_detected(tmp_path, saved):
    """Cut anywhere, or with any byte changed, the file is refused by name or reads the same."""
    whole = saved.read_bytes()
    model = make_model()
    Resume(tmp_path).initial_epoch(model)
    expected = state(model)
    refused = 0
    for place in np.random.default_rng(0).integers(0, len(whole), 15):
        changed = bytes([whole[place] ^ 255])
        for damaged in (whole[:place], whole[:place] + changed + whole[place + 1 :]):
            saved.write_bytes(damaged)
            try:
                Resume(tmp_path).initial_epoch(model)
            except ValueError as error:
                assert str(saved) in str(error)
                assert "delete it to start from the beginning" in str(error)
                refused += 1
            else:
                assert_equal_states(model, expected)
    assert refused > 25


def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing(tmp_path, saved):
    other, resume = make_model(width=5), Resume(tmp_path)
    before, content = other.get_weights(), saved.read_bytes()
    with pytest.raises(ValueError, match="saved by another model or optimizer"):
        resume.initial_epoch(other)
    for weight, value in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)
    with pytest.raises(ValueError, match="has checkpoints.*call `restore`"):
        fit(other, [resume], epochs=1)
    assert saved.read_bytes() == content


def test_the_model_must_be_compiled(tmp_path, saved):
    with pytest.raises(ValueError, match="must be built and compiled"):
        Resume(tmp_path).initial_epoch(keras.Sequential([keras.Input((1,))]))


@pytest.mark.parametrize("argument", ["every_steps", "keep"])
def test_numbers_must_be_positive(tmp_path, argument):
    with pytest.raises(ValueError, match=f"Received: {argument}=0"):
        Resume(tmp_path, **{argument: 0})
