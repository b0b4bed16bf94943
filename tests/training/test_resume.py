"""A killed run goes on as if it had not been killed."""

import keras
import numpy as np
import pytest

from keras_attn.training import LabelSmoothedCrossentropy, Noam, Perplexity, Resume


def make_model(width=4):
    model = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Embedding(7, width),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(7),
        ]
    )
    optimizer = keras.optimizers.Adam(Noam.from_peak(0.1, 10))
    model.compile(optimizer, LabelSmoothedCrossentropy(0.1))
    return model


class Interrupt(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            raise KeyboardInterrupt


def fit(model, callbacks, **arguments):
    tokens = np.random.default_rng(0).integers(1, 7, (12, 5))
    return model.fit(
        tokens, tokens, batch_size=4, verbose=0, shuffle=False, callbacks=callbacks, **arguments
    )


def state(model):
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def assert_equal_states(model, expected):
    for found, value in zip(state(model), expected, strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_killed_and_resumed_equals_straight(tmp_path, policy):
    """Weights, moments, step and dropout: nothing differs in the end."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(1)
    straight = make_model()
    fit(straight, [], epochs=4)

    keras.utils.set_random_seed(1)
    killed = make_model()
    resume = Resume(tmp_path)
    assert resume.initial_epoch(killed) == 0
    with pytest.raises(KeyboardInterrupt):
        fit(killed, [resume, Interrupt(step=7)], epochs=4)  # three steps make an epoch

    keras.utils.set_random_seed(2)
    resumed = make_model()
    resume = Resume(tmp_path)
    assert resume.initial_epoch(resumed) == 2
    fit(resumed, [resume], epochs=4, initial_epoch=2)
    assert_equal_states(resumed, state(straight))
    assert Resume(tmp_path).initial_epoch(make_model()) == 4


def test_every_steps_saves_within_an_epoch(tmp_path):
    model = make_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, [Resume(tmp_path, every_steps=2), Interrupt(step=5)], epochs=4)
    expected = state(model)
    resumed = make_model()
    assert Resume(tmp_path).initial_epoch(resumed) == 1
    assert_equal_states(resumed, expected)  # saved after step 5: the second of the second epoch


def saved(tmp_path):
    fit(make_model(), [Resume(tmp_path)], epochs=1)
    (path,) = tmp_path.iterdir()
    return path


def test_any_damage_is_found(tmp_path):
    """Cut anywhere, or with any byte changed, the file is refused by name or reads the same."""
    path = saved(tmp_path)
    whole = path.read_bytes()
    model = make_model()
    Resume(tmp_path).initial_epoch(model)
    expected = state(model)
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(whole), 60):
        for damaged in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :],
        ):
            path.write_bytes(damaged)
            try:
                Resume(tmp_path).initial_epoch(model)
            except ValueError as error:
                assert str(path) in str(error) and "delete it" in str(error)
                refused += 1
            else:
                assert_equal_states(model, expected)
    assert refused > 100


def test_another_model_is_refused_and_left_as_it_is(tmp_path):
    saved(tmp_path)
    other = make_model(width=5)
    before = other.get_weights()
    with pytest.raises(ValueError, match="saved by another model or optimizer"):
        Resume(tmp_path).initial_epoch(other)
    for found, value in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, value)


def test_the_model_must_be_compiled(tmp_path):
    saved(tmp_path)
    with pytest.raises(ValueError, match="must be built and compiled"):
        Resume(tmp_path).initial_epoch(keras.Sequential([keras.Input((1,))]))


def test_every_steps_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="Received: every_steps=0"):
        Resume(tmp_path, every_steps=0)
