"""`remat` and `remat_chain` give the values and gradients of a plain call and keep little."""

import gc
import weakref
from functools import partial

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops
from marks import all_slow

from keras_attn.backend import layer_kinds
from keras_attn.backend import remat as remat_module
from keras_attn.backend.remat import chain_recomputations, remat, remat_chain

D = 5
X, SHARED = oracles.random(3, D), oracles.random(3, D, seed=1)


@pytest.fixture(autouse=True)
def determined(monkeypatch):
    """Let the layers of this file share graphs, as those of the package do."""
    monkeypatch.setattr(layer_kinds, "DETERMINED", {*layer_kinds.DETERMINED, NoisyDense})


class NoisyDense(keras.layers.Layer):
    """A product with weights that draws random numbers, counts its calls and adds a loss."""

    def __init__(self, rate=0.5, seed=4):
        super().__init__()
        self.drop = keras.layers.Dropout(rate, seed=seed)
        self.runs, self.kept = 0, []
        self.build((None, D))

    def build(self, shape):
        self.kernel = self.add_weight((D, D), "glorot_normal", name="kernel")
        self.calls = self.add_weight((), "zeros", dtype="float32", trainable=False)
        self.built = True

    def call(self, x, shared=0.0, training=True):
        self.runs += 1
        self.calls.assign(self.calls + 1)
        y = ops.tanh(ops.matmul(x, self.kernel) + shared)
        self.kept.append(weakref.ref(y))
        y = self.drop(y, training=training)
        self.add_loss(ops.mean(y**2) * self.calls)
        return x + y


def noisy_layers(count=1):
    keras.utils.set_random_seed(7)
    layers = [NoisyDense() for _ in range(count)]
    for number, layer in enumerate(layers):
        layer.drop.seed_generator.state.assign([number, 0])
    return layers


def gradients(layers, run, *inputs):
    """Return the loss, with the losses of layers, and its gradients by inputs and weights."""
    whole = keras.layers.Layer()
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = run(layers, whole.add_loss, *inputs)
        loss = ops.sum(y * X) + sum(whole.losses) + sum(sum(layer.losses) for layer in layers)
    return loss, *tape.gradient(loss, [*inputs, *(layer.kernel.value for layer in layers)])


def run_plain(layers, add_loss, x, shared):
    for layer in layers:
        x = layer(x, shared)
    return x


def run_remat(layers, add_loss, x, shared):
    for layer in layers:
        x = remat(layer, x, shared, add_loss=add_loss)
    return x


def run_chain(layers, add_loss, x, shared, passes_layers=False):
    def step(layer):
        return lambda x, inputs: (layer(x, inputs["shared"], training=inputs["training"]), [x * 2])

    # A mask has no gradient.
    inputs = {"shared": shared, "training": True, "mask": tf.constant([True, False, True])}
    steps, arguments = [step(layer) for layer in layers], [inputs] * len(layers)
    named = layers if passes_layers else ()
    x, rests = remat_chain(steps, x, arguments, add_loss=add_loss, layers=named)
    assert len(rests) == len(layers)
    return x


def run_shared(layers, add_loss, x, shared):
    """Run the chain with one graph for all layers, which have one configuration."""
    return run_chain(layers, add_loss, x, shared, passes_layers=True)


def compiled(name, function):
    if name == "eager":
        return function
    return tf.function(function, jit_compile=name == "xla", autograph=False)


def results(run, name="eager", count=2, steps=2):
    """Return the numbers of the last of several steps, each with its own, and the layers."""
    layers = noisy_layers(count)
    inputs = tf.constant(X), tf.constant(SHARED)
    step = compiled(name, lambda *inputs: gradients(layers, run, *inputs))
    numbers = [step(*inputs) for _ in range(steps)]
    assert float(numbers[0][0]) != float(numbers[-1][0])
    return [np.asarray(x) for x in numbers[-1]], layers


@pytest.mark.parametrize(
    "name, run", [("eager", run_remat), *all_slow((("graph", run_remat), ("xla", run_shared)))]
)
def test_gradients_with_dropout_and_losses(name, run):
    expected, plain = results(run_plain, name)
    numbers, layers = results(run, name)
    for x, y in zip(numbers, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    for layer, twin in zip(layers, plain, strict=True):
        for variable, other in zip(layer.variables, twin.variables, strict=True):
            np.testing.assert_array_equal(variable, other)
        assert float(layer.calls) == 2 and layer.losses == []


def test_a_long_chain_is_split_into_segments(monkeypatch):
    monkeypatch.setattr(remat_module, "MAX_UNSEGMENTED", 3)
    expected, _ = results(run_plain, count=5)
    numbers, layers = results(run_chain, count=5)
    for x, y in zip(numbers, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert [float(layer.calls) for layer in layers] == [2.0] * 5


def test_the_backward_pass_computes_functions_of_chains_of_more_than_16_twice():
    assert [chain_recomputations(count) for count in (1, 16, 17, 64)] == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_graph_of_equal_layers_is_built_once():
    _, layers = results(run_shared, "graph", 3)
    assert [layer.runs for layer in layers] == [2, 0, 0]  # the layer, and its gradient


@pytest.mark.slow
def test_layers_that_read_more_than_their_own_weights_have_graphs_of_their_own():
    other = tf.Variable(2.0)

    def gradient(layers, is_shared):
        x = tf.constant(X)
        steps = [lambda x, inputs, layer=layer: (layer(x) * other, []) for layer in layers]
        with tf.GradientTape() as tape:
            if is_shared:
                x, _ = remat_chain(steps, x, [{}] * 2, add_loss=lambda loss: None, layers=layers)
            else:
                for step in steps:
                    x, _ = step(x, {})
            loss = ops.sum(x * X)
        return loss, tape.gradient(loss, other)

    numbers, expected = (
        tf.function(partial(gradient, noisy_layers(2), is_shared), autograph=False)()
        for is_shared in (True, False)
    )
    np.testing.assert_allclose(numbers, expected, rtol=1e-5)


def alive(run, count):
    """Return the number of inner results before the gradient, and the runs of each step."""
    layers = noisy_layers(count)
    with tf.GradientTape() as tape:
        x = tf.Variable(X)
        y = run(layers, lambda loss: None, x, tf.constant(SHARED))
    gc.collect()
    kept = sum(ref() is not None for layer in layers for ref in layer.kept)
    tape.gradient(y, x)
    return kept, [layer.runs for layer in layers]


def test_inner_results_are_not_kept_in_memory():
    assert alive(run_plain, 4) == (4, [1] * 4)
    assert alive(run_remat, 4) == (0, [2] * 4)


def test_unseeded_random_numbers_are_the_same_in_the_second_run():
    drawn = []

    def function(x):
        noise = keras.random.normal(x.shape)
        drawn.append(np.asarray(noise))
        return x * noise

    keras.random.normal(())  # creates the generator for numbers without a seed
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = remat(function, x, add_loss=None)
    gradient = tape.gradient(y, x)
    np.testing.assert_array_equal(*drawn)
    np.testing.assert_array_equal(gradient, drawn[0])
    assert (np.asarray(remat(function, x, add_loss=None)) != np.asarray(y)).any()


def test_variables_change_once():
    """Keras's own remat would update the statistics of a batch normalisation twice."""
    norms = [keras.layers.BatchNormalization(momentum=0.5) for _ in range(2)]
    arrays = []
    for norm, run in zip(norms, (remat, lambda f, x, add_loss: f(x)), strict=True):
        norm.build(X.shape)
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(lambda x: norm(x, training=True), x, add_loss=None)  # noqa: B023
            loss = ops.sum(y**3)
        arrays.append([*tape.gradient(loss, [x, norm.gamma.value]), *norm.weights])
    for x, y in zip(*arrays, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_integer_arguments_and_results_have_no_gradient():
    x, ids = tf.constant(X), tf.constant([2, 0, 1])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, more = remat(
            lambda data, scale: (ops.take(data["x"], data["ids"], axis=0) * scale, {"ids": ids}),
            {"x": x, "ids": ids, "none": None},
            2.0,
            add_loss=None,
        )
    np.testing.assert_array_equal(more["ids"], ids)
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(y, x)), np.full_like(X, 2))


def test_functions_that_cannot_run_twice_are_refused():
    layer = NoisyDense()

    def assigns(x):
        layer.kernel.assign(layer.kernel * 2)
        return x @ layer.kernel

    with pytest.raises(ValueError, match="must not assign to trainable weights.*kernel"):
        remat(assigns, tf.constant(X), add_loss=None)
    with pytest.raises(ValueError, match="must not create variables.*dense/kernel"):
        remat(keras.layers.Dense(3, name="dense"), tf.constant(X), add_loss=None)


def test_inside_a_stateless_call():
    layer = noisy_layers()[0]

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def call(self, x):
            return remat(layer, x, add_loss=self.add_loss)

    model = Model()
    model.build(X.shape)
    values = [v.value for v in model.non_trainable_variables]
    y, states, losses = model.stateless_call(
        [layer.kernel.value * 2], values, tf.constant(X), return_losses=True
    )
    assert float(layer.calls) == 0 and len(losses) == 1
    layer.kernel.assign(layer.kernel * 2)
    np.testing.assert_allclose(y, model(tf.constant(X)), rtol=1e-6)
    for state, variable in zip(states, model.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(state, variable)
