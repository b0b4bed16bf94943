"""Killed within an epoch on the backends without TensorFlow."""

import pytest
from other_backend import INSTALLED, run_on

pytestmark = pytest.mark.slow

# Without a seed Keras's dropout on torch draws from torch's generator, which is no variable.
# JAX keeps the state outside the model within an epoch, and takes it from there when it begins.
PROGRAM = """
import json, signal, tempfile
import keras
import numpy as np
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity
from keras_attn.callbacks import Resume, Terminated

ROWS, T = 3, 4
TOKENS = np.random.default_rng(0).integers(1, 11, (5 * ROWS, T))

class Kill(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.seen = self.seen + 1 if hasattr(self, "seen") else 0
        if self.seen == 6:
            raise KeyboardInterrupt

def made(seed):
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((T,)), keras.layers.Embedding(11, 6), keras.layers.Dropout(0.3, seed=7)]
    model = keras.Sequential([*layers, keras.layers.BatchNormalization(), keras.layers.Dense(11)])
    model.compile("adam", LabelSmoothedCrossentropy(), metrics=["accuracy", Perplexity()])
    return model

def train(model, logged, callbacks, epoch=0, batch=0):
    class Log(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logged[epoch] = dict(logs)
    while epoch < 2:
        x = TOKENS[batch * ROWS:]
        model.fit(x, x, batch_size=ROWS, shuffle=False, verbose=0, initial_epoch=epoch,
                  epochs=epoch + 1, callbacks=[Log(), *callbacks])
        epoch, batch = epoch + 1, 0

def state(model):
    return [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]

class Told(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            signal.raise_signal(signal.SIGTERM)

directory = tempfile.mkdtemp()
straight, expected, logged, positions = made(1), {}, {}, []
train(straight, expected, [])
first, resume = made(1), Resume(directory)
positions.append(resume.restore(first))
try:
    train(first, logged, [Told(), resume])
except Terminated:
    second, resume = made(2), Resume(directory, every_steps=3)
    positions.append(resume.restore(second))
try:
    train(second, logged, [Kill(), resume], *positions[-1])
except KeyboardInterrupt:
    third, resume = made(3), Resume(directory)
    positions.append(resume.restore(third))
train(third, logged, [resume], *positions[-1])
equal = [bool((a == b).all()) for a, b in zip(state(third), state(straight), strict=True)]
print(json.dumps([positions, equal, list(expected.items()), sorted(logged.items())]))
"""


@pytest.mark.parametrize("backend", INSTALLED)
def test_killed_twice_within_an_epoch_equals_straight(backend):
    positions, equal, expected, logged = run_on(backend, PROGRAM)
    # SIGTERM in the second batch, and the end when the seventh of the others begins.
    assert positions == [[0, 0], [0, 2], [1, 3]]
    assert len(equal) > 5 and all(equal)
    assert len(expected) == 2 and logged == expected
