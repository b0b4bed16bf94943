"""`bounded_while` gives the results of its steps taken one after the other, in every mode."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from marks import all_slow

from keras_attn.backend.loops import bounded_while

MODES = {
    "eager": lambda function: function,
    "graph": tf.function,
    "xla": lambda function: tf.function(function, jit_compile=True),
}


class CountedStep(keras.layers.Layer):
    """x -> w x; counts its calls and adds a loss."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.drop = keras.layers.Dropout(rate)

    def build(self, shape):
        self.w = self.add_weight((), "ones")
        self.calls = self.add_weight((), "zeros", trainable=False)

    def call(self, x, training=None):
        self.calls.assign(self.calls + 1)
        x = self.drop(self.w * x, training=training)
        self.add_loss(ops.mean(x))
        return x


class RepeatedStep(keras.layers.Layer):
    """Take `limit` steps, at max_steps `max_steps`."""

    def __init__(self, limit, max_steps, rate=0.0):
        super().__init__()
        self.step, self.limit, self.max_steps = CountedStep(rate), limit, max_steps

    def build(self, shape):
        self.step.build(shape)

    def call(self, x, training=None):
        x, taken = bounded_while(
            lambda state: ops.any(state[1] < self.limit),
            lambda number, state: (self.step(state[0], training=training), state[1] + 1),
            (x, ops.zeros(())),
            self.max_steps,
            add_loss=self.add_loss,
        )
        return x, taken


@pytest.mark.parametrize(
    "mode, limit, max_steps, steps",
    [
        ("eager", 7, 5, 5),
        ("eager", 0, 5, 1),
        ("graph", 3, 5, 3),
        *all_slow((("graph", 3, 1, 1), ("xla", 7, 5, 5))),
    ],
)
def test_steps_variables_losses_and_gradient(mode, limit, max_steps, steps):
    layer = RepeatedStep(limit, max_steps)
    layer.build((2, 3))
    layer.step.w.assign(2.0)
    x = np.arange(6, dtype="float32").reshape(2, 3)

    @MODES[mode]
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, taken = layer(x)
            total = ops.sum(y) + sum(layer.losses)
        return y, taken, sum(layer.losses), tape.gradient(total, [x, layer.step.w.value])

    y, taken, loss, (by_x, by_w) = run(tf.constant(x))
    assert int(taken) == steps == int(layer.step.calls)
    np.testing.assert_allclose(y, 2.0**steps * x)
    np.testing.assert_allclose(loss, sum(2.0**n for n in range(1, steps + 1)) * x.mean())
    slope = sum(n * 2.0 ** (n - 1) for n in range(1, steps + 1)) * x.mean()
    np.testing.assert_allclose(by_w, steps * 2.0 ** (steps - 1) * x.sum() + slope)
    losses = sum(2.0**n for n in range(1, steps + 1)) / 6
    np.testing.assert_allclose(by_x, np.full_like(x, 2.0**steps + losses), rtol=1e-6)


@pytest.mark.slow
def test_each_step_draws_new_random_numbers():
    """Three steps that drop half each keep an eighth, and the next call keeps another eighth."""
    layer = RepeatedStep(3, 9, rate=0.5)
    layer.build((None, 4000))
    x = ops.ones((1, 4000))
    run = MODES["graph"](lambda x: layer(x, training=True)[0])
    first, second = (np.asarray(run(x)) != 0 for _ in range(2))
    for kept in (first, second):
        assert abs(kept.mean() - 1 / 8) < 0.03
    assert abs((first & second).mean() - 1 / 64) < 0.02
