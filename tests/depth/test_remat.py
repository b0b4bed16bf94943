"""`Stack(remat=True)` against the same stack without rematerialisation."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention import captures
from keras_attn.backend import tensorflow_graphs
from keras_attn.backend.loop_invariants import loop_invariants
from keras_attn.depth import Recurrent, Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

B, T, D = 2, 7, 6


def stack(remat, dropout=0.3, dtype=None):
    """Return a stack of two blocks with the same weights and seeds at each call."""
    keras.utils.set_random_seed(0)

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 3, pattern="causal", dropout=dropout, dtype=dtype),
            FeedForward(11, dropout=dropout, dtype=dtype),
            dropout=dropout,
            dtype=dtype,
        )

    layer = Stack(block, 2, remat=remat, dtype=dtype)
    layer.build((None, None, D))
    return layer


@pytest.mark.slow
def test_equal_blocks_share_a_graph_in_mixed_precision(monkeypatch):
    outputs, calls = [], []
    for remat, is_shared in ((True, True), (False, True), (False, False)):
        layer = stack(remat, dtype="mixed_bfloat16")
        if not is_shared:
            monkeypatch.setattr(layer, "_sharing_blocks", lambda call: ())
        for number, block in enumerate(layer.blocks):
            block.attention_residual.norm.gamma.assign(tf.fill([D], 1.003 + number))
        run = tf.function(lambda x, layer=layer: layer(x, training=True), autograph=False)
        x = tf.constant(oracles.random(B, T, D))
        outputs.append(np.asarray(run(x), "float32"))
        calls.append(number_of_calls(run, x))
    for output in outputs[:2]:
        np.testing.assert_array_equal(output, outputs[2])
    assert calls == [2, 2, 0]


@pytest.mark.parametrize("max_merged", [1, 2])
def test_blocks_that_share_a_graph_train_as_those_with_graphs_of_their_own(max_merged, monkeypatch):
    """The outputs, gradients and states of dropout are equal, and blocks differ in weights."""
    monkeypatch.setattr(tensorflow_graphs, "MAX_MERGED", max_merged)
    numbers = []
    for is_shared in (True, False):
        layer = stack(False)
        for number, variable in enumerate(layer.trainable_variables):
            variable.assign(oracles.random(*variable.shape, seed=number))
        if not is_shared:
            monkeypatch.setattr(layer, "_sharing_blocks", lambda call: ())

        def step(x, layer=layer):
            with tf.GradientTape() as tape:
                tape.watch(x)
                output = layer(x, training=True)
            weights = [weight.value for weight in layer.trainable_variables]
            return output, tape.gradient(output, [x, *weights])

        run, x = tf.function(step, autograph=False), tf.constant(oracles.random(B, T, D))
        numbers.append([run(x), run(x), layer.variables])
        # Each block has a call of its own, and a call of its gradient.
        assert number_of_calls(run, x) == (4 if is_shared else 0)
    for x, y in zip(*map(tf.nest.flatten, numbers), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outer", [tf.distribute.OneDeviceStrategy("cpu:0").scope, loop_invariants])
def test_blocks_share_no_graph_where_others_read_what_is_inside(outer):
    layer, x = stack(False), tf.constant(oracles.random(B, T, D))

    def step(x):
        with outer():
            return layer(x, training=True)

    assert number_of_calls(tf.function(step, autograph=False), x) == 0


def number_of_calls(run, x):
    """Return the number of calls of functions in the graph of another."""
    operations = run.get_concrete_function(x).graph.get_operations()
    return sum(operation.type.endswith("PartitionedCall") for operation in operations)


@pytest.mark.slow
def test_blocks_whose_scores_are_recorded_share_no_graph(monkeypatch):
    """A recorder would see the first block only."""
    layers = []
    monkeypatch.setattr(captures, "record", lambda layer, *_: layers.append(layer))
    layer, x = stack(True), tf.constant(oracles.random(B, T, D))
    run = tf.function(lambda x: layer(x, training=True), autograph=False)
    assert number_of_calls(run, x) == 0
    assert {id(x) for x in layers} == {id(block.attention) for block in layer.blocks}


@pytest.mark.slow
def test_steps_that_know_their_number_share_no_graph():
    """Each step adds its own sinusoids, by which it differs from the others."""
    keras.utils.set_random_seed(0)
    block = TransformerBlock(MultiHeadAttention(2, 3), FeedForward(11))
    layer = Recurrent(block, 3, position="timestep", remat=True)
    x = tf.constant(oracles.random(B, T, D))
    expected = layer(x, training=False)
    output = tf.function(lambda x: layer(x, training=True), autograph=False)(x)
    np.testing.assert_allclose(output, expected, atol=1e-5)
