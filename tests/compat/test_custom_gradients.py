"""Custom gradients in graphs are right wherever a graph is used, and are freed with the graph."""

import gc

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from catalogue_models import block, causal_model, token_ids
from each import check_each
from marks import all_slow
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import gradient_registry

from keras_attn import depth, feed_forward, losses
from keras_attn.backend import operations, row_groups
from keras_attn.backend.loops import for_each_tile
from keras_attn.backend.remat import remat, reversible
from keras_attn.ops.sorting import permute

X = oracles.random(3, 5)
SCALE = oracles.random(5, seed=1)
LABELS = np.array([4, 0, 2])
ORDER, INVERSE = np.array([2, 0, 1], "int32"), np.array([1, 2, 0], "int32")


@tf.custom_gradient
def cube(x):
    """Return x^3, with a gradient by which it is known that it is used."""
    return x**3, lambda upstream: 5.0 * x**2 * upstream


def stretch(x):
    return tf.tanh(x) * SCALE


def both(results):
    return results[0] + results[1]


def weigh(losses, x):
    return tf.expand_dims(losses, -1) * x


# Functions with a custom gradient, and the same ones without.
CASES = {
    "normalize": (
        lambda x: operations.normalize(x, 1e-3, tf.constant(SCALE)),
        lambda x: operations.normalize.portable(x, 1e-3, SCALE),
    ),
    "softmax": (
        lambda x: both(operations.softmax_with_logsumexp(x)),
        lambda x: both(operations.softmax_with_logsumexp.portable(x)),
    ),
    "crossentropy": (
        lambda x: weigh(operations.crossentropy(LABELS, x, 0.1), x),
        lambda x: weigh(operations.crossentropy.portable(LABELS, x, 0.1), x),
    ),
    "permute": (
        lambda x: permute(x, ORDER, INVERSE),
        lambda x: tf.one_hot(ORDER, 3) @ x,
    ),
    "rows": (
        lambda x: row_groups._take_distinct(x, (ORDER, ORDER < 2), (INVERSE, INVERSE != 0)),
        lambda x: tf.one_hot(np.where(ORDER < 2, ORDER, -1), 3) @ x,
    ),
    "tiles": (
        lambda x: for_each_tile(lambda x: (stretch(x),), (x,), (), ["float32"])[0],
        stretch,
    ),
    "remat": (lambda x: remat(stretch, x, add_loss=None), stretch),
    "reversible": (
        lambda x: both(reversible([stretch, tf.sin], x, x**2, add_loss=None)),
        lambda x: (x + stretch(x**2)) + (x**2 + tf.sin(x + stretch(x**2))),
    ),
    "Keras's remat": (keras.remat(stretch), stretch),
    "TensorFlow's silu": (tf.nn.silu, lambda x: x * tf.sigmoid(x)),
}


def slope(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


def twice(function):
    """Return a function of a graph that calls another one, with a gradient, two times in a loop."""
    return lambda x: tf.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, function(x)), (0, x), maximum_iterations=2
    )[1]


def branch(function):
    return lambda x: tf.cond(tf.reduce_sum(x) < 1e9, lambda: function(x), lambda: x)


def graph(function, **options):
    return tf.function(function, autograph=False, **options)


# Functions of a function and x that return its gradient, or that of two calls.
PLACES = {
    "eager call": slope,
    "tape in a function": lambda f, x: graph(lambda x: slope(f, x))(x),
    "tf.gradients": lambda f, x: graph(lambda x: tf.gradients(f(x), x)[0])(x),
    "tape around a function": lambda f, x: slope(graph(f), x),
    "nested function": lambda f, x: graph(lambda x: slope(graph(f), x))(x),
    "branch": lambda f, x: graph(lambda x: slope(branch(f), x))(x),
    "loop": lambda f, x: graph(lambda x: slope(twice(f), x))(x),
    "XLA": lambda f, x: graph(lambda x: slope(f, x), jit_compile=True)(x),
}


def alive():
    """Return how many graphs and how many gradients of graphs the process holds."""
    gc.collect()
    graphs = sum(isinstance(x, FuncGraph) for x in gc.get_objects())
    return graphs, sum(name.startswith("CustomGradient") for name in gradient_registry.list())


def test_the_custom_gradient_is_used_in_every_place_and_freed():
    before = alive()

    def check(place):
        expected = 25.0 * X**8 if place == "loop" else 5.0 * X**2
        np.testing.assert_allclose(PLACES[place](cube, tf.constant(X)), expected, rtol=1e-5)

    check_each(check, list(PLACES))
    assert alive() == before, "compat/custom_gradients.py: graphs stay after they were used"


@pytest.mark.parametrize("name", all_slow(CASES))
def test_gradients_are_right_in_every_place_and_freed(name):
    ours, plain = CASES[name]
    x, before = tf.constant(X), alive()

    def check(place):
        expected = slope((lambda x: plain(plain(x))) if place == "loop" else plain, x)
        np.testing.assert_allclose(PLACES[place](ours, x), expected, rtol=1e-5, atol=1e-6)

    check_each(check, list(PLACES))
    assert alive() == before


def test_gradients_of_gradients():
    second = graph(lambda x: slope(lambda x: slope(cube, x), x))
    np.testing.assert_allclose(second(tf.constant(X)), 10.0 * X, rtol=1e-5)


def test_a_saved_model_stores_the_gradient_of_each_call(tmp_path):
    module = tf.Module()
    module.f = graph(lambda x: cube(x) + cube(2.0 * x), input_signature=[tf.TensorSpec([None, 5])])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(slope(loaded.f, tf.constant(X)), 45.0 * X**2, rtol=1e-5)


def train(remat):
    blocks = [block(feed=feed_forward.GatedFeedForward(11)) for _ in range(2)]
    model = causal_model(depth.Stack(blocks, remat=remat))
    model.compile("sgd", losses.LabelSmoothedCrossentropy(), jit_compile=False)
    model.fit({"token_ids": token_ids()}, token_ids(1), verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("remat", [True, False])
def test_trained_models_are_freed(remat):
    train(remat)
    before = alive()
    train(remat)
    assert alive() == before


def test_a_block_in_a_graph_is_freed():
    def step():
        layer = block(feed=feed_forward.GatedFeedForward(11))
        layer.build((None, None, 8))
        graph(lambda x: slope(layer, x))(tf.ones((2, 3, 8)))

    step()
    before = alive()
    step()
    assert alive() == before
