"""Properties of every plan: nothing leaks, no matrix is made, dropout is the same twice."""

import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from index_sets import CASES, NUM_HEADS, SMALL_TILES, truth
from keras import ops
from marks import slow

from keras_attn.attention.inputs import AttentionInputs, PositionRange
from keras_attn.attention.softmax import FORBIDDEN, attend_logits
from keras_attn.ops.random import RepeatedSeed
from keras_attn.scores import DotProduct

B, N, T, H = 2, NUM_HEADS, 37, 5
# tests/patterns/test_plans.py has the numbers of every way of cutting.
EACH = pytest.mark.parametrize("case", ["nested", slow("strided"), slow("heads in rows")])


def operands(query, key, value, **more):
    places = PositionRange(0, query.shape[2]), PositionRange(0, key.shape[2])
    return AttentionInputs(query, key, value, *places, DotProduct(), tile_sizes=SMALL_TILES, **more)


def inputs(length=T, dtype="float32", batch=B):
    shape = batch, N, length, H
    return [ops.cast(oracles.random(*shape, seed=seed), dtype) for seed in range(3)]


def output_of(pattern, arrays, real=None):
    return np.asarray(pattern.plan.attend(operands(*map(tf.constant, arrays), key_mask=real))[0])


@pytest.mark.parametrize("case", ["nested", slow("strided")])
def test_no_leak_from_the_future(case):
    pattern, _ = CASES[case]
    arrays = [np.asarray(x) for x in inputs()]
    garbage = oracles.random(B, N, T, H, seed=9, scale=1e3)
    before = output_of(pattern, arrays)
    for t in (0, T // 2):
        changed = [np.concatenate([x[:, :, : t + 1], garbage[:, :, t + 1 :]], 2) for x in arrays]
        after = output_of(pattern, changed)
        np.testing.assert_array_equal(after[:, :, : t + 1], before[:, :, : t + 1])
        assert np.any(after[:, :, t + 1 :] != before[:, :, t + 1 :])


@EACH
def test_no_leak_from_padding(case):
    pattern, _ = CASES[case]
    query, *pair = (np.asarray(x) for x in inputs())
    real = np.random.default_rng(1).random((B, 1, T)) < 0.6
    garbage = oracles.random(B, N, T, H, seed=9, scale=1e3)
    changed = [np.where(real[..., None], x, garbage) for x in pair]
    before = output_of(pattern, [query, *pair], real)
    np.testing.assert_array_equal(output_of(pattern, [query, *changed], real), before)
    assert np.any(output_of(pattern, [query, *pair]) != before)


@EACH
def test_where_all_is_padding_output_and_gradient_are_zero(case):
    pattern, _ = CASES[case]
    query, key, value = inputs(dtype="float16")
    with tf.GradientTape() as tape:
        tape.watch([query, key, value])
        real = tf.zeros((B, 1, T), "bool")
        output, _ = pattern.plan.attend(operands(query, key, value, key_mask=real))
        loss = tf.reduce_sum(output)
    gradients = tape.gradient(loss, [query, key, value], unconnected_gradients="zero")
    for x in (output, *gradients):
        assert np.all(np.asarray(x) == 0)


@pytest.mark.parametrize("case", ["big bird", slow("local around"), slow("heads in rows")])
def test_the_log_weight_is_the_log_of_the_sum_of_exponentials(case):
    pattern, sets = CASES[case]
    query, key, value = inputs()
    real = np.random.default_rng(1).random((B, 1, T)) < 0.6
    output, log_weight = pattern.plan.attend(
        operands(query, key, value, key_mask=real), log_weight=True
    )
    np.testing.assert_allclose(output, output_of(pattern, [query, key, value], real), atol=1e-6)
    allowed = truth(sets, T, T)[None] & real[:, :, None]
    logits = np.einsum("bnth,bnsh->bnts", *(oracles.numpy_of(x) for x in (query, key))) / H**0.5
    total = np.where(allowed, np.exp(logits), 0).sum(-1)
    some = total > 0
    assert log_weight.shape == (B, N, T, 1)
    log_weight = np.asarray(log_weight)[..., 0]
    np.testing.assert_allclose(log_weight[some], np.log(total[some]), atol=1e-5)
    np.testing.assert_array_equal(log_weight[~some], np.float32(FORBIDDEN))


@pytest.mark.parametrize("case", CASES)
def test_the_cost_covers_every_allowed_key_and_few_others(case):
    pattern, sets = CASES[case]
    for num_keys in (7, 60, 140):
        if case in ("global", "big bird"):  # a few queries attend to all keys: the mean counts
            most = truth(sets, num_keys, num_keys).sum(-1).mean()
        else:
            most = truth(sets, min(num_keys, 11), num_keys).sum(-1).max()
        assert most <= pattern.keys_per_query(num_keys) <= num_keys
    assert pattern.keys_per_query(140) <= 3 * most  # whole tiles


def tensors_of(function, length):
    """(op, shape) of every tensor in the graph of forward and gradient, loops included."""

    def forward_and_gradient(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            output = function(operands(query, key, value))
        return output, *tape.gradient(output, [query, key, value])

    signature = [tf.TensorSpec((1, N, length, H))] * 3
    traced = tf.function(forward_and_gradient, signature, autograph=False)
    graph = traced.get_concrete_function().graph.as_graph_def(add_shapes=True)
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    for node in (node for body in bodies for node in body):
        for shape in node.attr["_output_shapes"].list.shape:
            # What a loop stacks has the number of its steps in front, which is not written down.
            yield node.op, [max(dim.size, 1) for dim in shape.dim]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["causal", "big bird"])
def test_no_tensor_of_the_graph_is_a_matrix_of_scores(case):
    length = 256
    tensors = list(tensors_of(lambda x: CASES[case][0].plan.attend(x)[0], length))
    assert max(math.prod(shape) for _, shape in tensors) < length * length
    # Nor does a loop pile up what its steps computed, for the way back.
    assert not {"TensorListPushBack", "StackPushV2"} & {op for op, _ in tensors}


def test_the_matrix_is_seen_where_there_is_one():
    def matrix(x):
        return attend_logits(x.score(x.query, x.key), x.value)[0]

    assert max(math.prod(shape) for _, shape in tensors_of(matrix, 64)) >= 64 * 64


def drop_half(weights, seed):
    return keras.random.dropout(weights, 0.5, seed=RepeatedSeed(seed))


DROPPING = {"dropout_fn": drop_half, "seed": tf.constant([3, 5])}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["local around", "heads in rows"])
def test_the_gradient_is_of_the_weights_that_were_dropped(case):
    pattern, _ = CASES[case]

    def run(query, key, value, upstream):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            output, _ = pattern.plan.attend(operands(query, key, value, **DROPPING))
            loss = tf.reduce_sum(output * upstream)
        return output, *tape.gradient(loss, [query, value])

    query, key, value = inputs()
    upstream = tf.constant(oracles.random(B, N, T, H, seed=4))
    output, query_gradient, value_gradient = run(query, key, value, upstream)
    # The output is linear in the values: its product with their gradient gives it back.
    np.testing.assert_allclose(
        tf.reduce_sum(value * value_gradient), tf.reduce_sum(output * upstream), rtol=1e-4
    )
    direction, step = oracles.random(B, N, T, H, seed=5), 1e-2
    ahead, back = (run(query + s * direction, key, value, upstream)[0] for s in (step, -step))
    slope = tf.reduce_sum(upstream * (ahead - back)) / (2 * step)
    np.testing.assert_allclose(tf.reduce_sum(query_gradient * direction), slope, rtol=2e-2)
    np.testing.assert_array_equal(run(query, key, value, upstream)[0], output)
