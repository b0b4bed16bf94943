"""`for_each_tile` gives the values and gradients of one tile after another."""

import numpy as np
import pytest
import tensorflow as tf
from marks import slow
from other_backend import INSTALLED, run_on

from keras_attn.backend.loops import for_each_tile, tile_loops, without_tile_loops

TILES, SHARED = np.random.default_rng(0).random((2, 5, 3, 4)).astype("float32")
SHARED = SHARED[0].T  # (4, 3)
NUMBERS = np.arange(5, dtype="int32")


def compute(x, number, shared):
    y = tf.tanh(x @ shared)
    return y * tf.cast(number, y.dtype), tf.reduce_sum(y, axis=-1, keepdims=True)


def run(tiles, numbers, shared, compute=compute):
    with tf.GradientTape() as tape:
        tape.watch([tiles, shared])
        first, second = for_each_tile(compute, (tiles, numbers), (shared,), ["float32"] * 2)
        loss = tf.reduce_sum(first**2) + tf.reduce_sum(second**3)
    return first, second, *tape.gradient(loss, [tiles, shared])


def expected(tiles, numbers, shared):
    tiles, shared = tiles.astype("float64"), shared.astype("float64")
    y = np.tanh(tiles @ shared)
    first, second = y * numbers[:, None, None], y.sum(-1, keepdims=True)
    slope = 2 * first * numbers[:, None, None] + 3 * second**2
    inner = slope * (1 - y**2)
    return first, second, inner @ shared.T, np.einsum("itd,itu->du", tiles, inner)


SHAPES = [tf.TensorSpec([None, 3, 4]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([4, 3])]


def run_without_loops(*arrays):
    with without_tile_loops():
        return run(*arrays)


MODES = {
    "eager": run,
    "unknown count": tf.function(run, SHAPES, autograph=False),
    "without loops": tf.function(run_without_loops, autograph=False),
    "xla": tf.function(run, jit_compile=True, autograph=False),
}


@pytest.mark.parametrize("mode", ["eager", "unknown count", "without loops", slow("xla")])
def test_values_and_gradients(mode):
    run = MODES[mode]
    arrays = TILES, NUMBERS + 1, SHARED
    outputs = run(*(tf.constant(x) for x in arrays))
    for x, y in zip(outputs, expected(*arrays), strict=True):
        assert tuple(x.shape) == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_a_graph_without_loops_has_none_and_the_scope_ends():
    graph = MODES["without loops"].get_concrete_function(TILES, NUMBERS, SHARED).graph
    assert not any("While" in operation.type for operation in graph.get_operations())
    assert tile_loops.are_built


@pytest.mark.slow
def test_a_graph_keeps_no_zeros_from_which_sums_begin():
    """As constants of the graph they would take their memory for good."""
    shared, used = tf.ones((4, 2**18)), tf.config.experimental.get_memory_info
    step = tf.function(
        lambda *x: [tf.reduce_mean(y) for y in run(*x, compute=compute)], autograph=False
    )
    arguments = tf.constant(TILES), tf.constant(NUMBERS), shared
    before = used("CPU:0")["current"]
    for _ in range(2):
        step(*arguments)
    assert used("CPU:0")["current"] - before < shared.shape.num_elements()  # a quarter of its bytes


def test_each_tile_is_computed_again_for_the_gradient():
    calls = []

    def noted(x, number, shared):
        tf.py_function(lambda n: calls.append(int(n)), [number], [])
        return compute(x, number, shared)

    run(*(tf.constant(x) for x in (TILES, NUMBERS, SHARED)), compute=noted)
    assert calls == [0, 1, 2, 3, 4] * 2


def test_unused_tensors_get_a_gradient_of_zero():
    tiles, shared = tf.constant(TILES), tf.constant(SHARED)
    with tf.GradientTape() as tape:
        tape.watch([tiles, shared])
        (y,) = for_each_tile(lambda x, shared: (x * 2,), (tiles,), (shared,), ["float32"])
    gradients = tape.gradient(y, [tiles, shared])
    np.testing.assert_array_equal(gradients[0], np.full_like(TILES, 2))
    np.testing.assert_array_equal(gradients[1], np.zeros_like(SHARED))


OTHER_BACKEND = """
import json
import keras
import numpy as np
from keras import ops
from keras_attn.layers import MultiHeadAttention
from keras_attn.attention.inputs import TileSizes
from keras_attn.patterns import Fixed, Local, PerHead, Strided

MultiHeadAttention.tile_sizes = TileSizes(1, 700, least_group=4, most_block=3)
random = np.random.default_rng(0)
x = random.normal(size=(2, 37, 6)).astype("float32")
real = np.arange(37) < np.array([[37], [21]])

def results(layer):
    # the output, and the gradients of weights and input
    if keras.backend.backend() == "jax":
        import jax

        def loss(weights, x):
            y, _ = layer.stateless_call(weights, [], x, x, value_mask=real)
            return (y**2).sum(), y

        weights = [variable.value for variable in layer.weights]
        gradients, y = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(weights, x)
        return y, *jax.tree.leaves(gradients)
    import torch
    inputs = torch.tensor(x, requires_grad=True)
    y = layer(inputs, inputs, value_mask=real)
    (y**2).sum().backward()
    return y.detach(), *(variable.value.grad for variable in layer.weights), inputs.grad

def difference(pattern, score):
    layers = []
    for plan in ("dense", "blockwise"):
        layer = MultiHeadAttention(3, 4, pattern=pattern, score=score, implementation=plan)
        layer.build(x.shape, x.shape)
        if layers:
            layer.set_weights(layers[0].get_weights())
        layers.append(layer)
    both = [results(layer) for layer in layers]
    return max(
        float(np.abs(ops.convert_to_numpy(a) - ops.convert_to_numpy(b)).max())
        for a, b in zip(*both, strict=True)
    )

def dropped():
    options = {"implementation": "blockwise", "dropout": 0.5, "seed": 1}
    layer = MultiHeadAttention(3, 4, pattern=Local(5), **options)
    calls = [ops.convert_to_numpy(layer(x, x, training=True)) for _ in range(2)]
    return bool(np.isfinite(calls).all() and np.any(calls[0] != calls[1]))

heads = PerHead([Local(5), Fixed(5, 2), Local(5)])
cases = [(Strided(5), "additive"), (heads, "scaled_dot")]
print(json.dumps([[difference(*case) for case in cases], dropped()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_blockwise_equals_dense_on_another_backend(backend):
    if backend not in INSTALLED:
        pytest.skip(f"{backend} is not installed")
    differences, dropped = run_on(backend, OTHER_BACKEND)
    np.testing.assert_array_less(differences, 1e-4)
    assert dropped
