"""Causal attention in halves is the softmax over the keys up to the query, and its gradient.

The truth is written here from the definition, in float64.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.attention import causal
from keras_attn.attention.inputs import AttentionInputs, PositionRange, TileSizes
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Causal, Local
from keras_attn.scores import Additive, DotProduct

B, N, H, HV = 2, 3, 5, 7
# Blocks of 4 queries; products of several squares, of one, and of a part of one.
SMALL = TileSizes(most_block=4, block_scores=70)
LENGTHS = 1, 3, 4, 5, 13, 23


def arrays(length, factor=1.0):
    """Queries, keys, values and the gradient by the output; logits grow with the factor."""
    rng = np.random.default_rng(length)
    widths = H, H, HV, HV
    query, *others = (rng.standard_normal((B, N, length, width)) for width in widths)
    return factor * query, *others


def padding(length):
    """The first keys of one sequence are padding, and some of the other one."""
    real = np.random.default_rng(0).random((B, 1, length)) < 0.6
    real[0, :, : length // 3] = False
    real[1, :, 0] = True
    return real


def expected(query, key, value, upstream, real=None):
    """Output, log weight, and gradients of sum(output upstream) + sum(sin(log weight))."""
    allowed = np.tril(np.ones((query.shape[2],) * 2, bool))
    if real is not None:
        allowed = allowed & real[:, :, None]
    has_key = allowed.any(-1, keepdims=True)
    logits = np.where(allowed, query @ key.swapaxes(2, 3) / np.sqrt(H), -np.inf)
    top = np.where(has_key, logits.max(-1, keepdims=True), 0.0)
    weights = np.exp(logits - top)
    total = np.where(has_key, weights.sum(-1, keepdims=True), 1.0)
    weights, log_weight = weights / total, np.where(has_key, top + np.log(total), 0.0)
    slope = upstream @ value.swapaxes(2, 3)
    slope = slope - (weights * slope).sum(-1, keepdims=True) + np.cos(log_weight)
    slope = weights * slope / np.sqrt(H)
    gradients = slope @ key, slope.swapaxes(2, 3) @ query, weights.swapaxes(2, 3) @ upstream
    return weights @ value, log_weight, *gradients


def run(query, key, value, upstream, real=None, sizes=SMALL, score=None):
    """The same by the plan of `Causal`."""
    positions = PositionRange(0, query.shape[2] or tf.shape(query)[2])
    heads = query, key, value
    with tf.GradientTape() as tape:
        tape.watch(heads)
        inputs = AttentionInputs(*heads, positions, positions, score or DotProduct(), real)
        output, log_weight = Causal().plan.attend(inputs.replace(tile_sizes=sizes), True)
        log_weight = tf.where(log_weight > -1e29, log_weight, 0.0)
        loss = tf.reduce_sum(tf.cast(output * upstream, log_weight.dtype))
        loss += tf.reduce_sum(tf.sin(log_weight))
    return output, log_weight, *tape.gradient(loss, heads)


def tensors(given, dtype="float32"):
    return [tf.constant(x, x.dtype if x.dtype == bool else dtype) for x in given]


def check(results, truth, atol=1e-5):
    for x, y in zip(results, truth, strict=True):
        x = np.asarray(tf.cast(x, "float64"))
        np.testing.assert_allclose(x, y, atol=atol * max(1, np.abs(y).max()), rtol=0)


@pytest.fixture
def loops(monkeypatch):
    """The plan fails where it leaves causal attention to the loop over tiles."""

    def fail(self, inputs, log_weight):
        raise AssertionError("a loop over tiles")

    monkeypatch.setattr(causal.AllKeys, "attend_row", fail)


@pytest.mark.parametrize("length", LENGTHS)
def test_values_and_gradients_at_any_length(length, loops):
    given = arrays(length)
    check(run(*tensors(given)), expected(*given))


@pytest.mark.parametrize("factor", [1.0, 300.0])
def test_padding_weighs_nothing_for_small_and_for_large_logits(factor, loops):
    """Logits above a few hundred have no exponential in float32. A query without keys gets zero."""
    given = *arrays(13, factor), padding(13)
    results = run(*tensors(given))
    check(results, expected(*given), atol=1e-4 if factor > 1 else 1e-5)
    for x in (results[0], results[2]):
        assert not np.asarray(x)[0, :, :4].any()


def test_tiny_gradients_of_large_logits_are_not_lost(loops):
    """The exponential of a logit of 55 is 1e24: 1e-15, divided by that, rounds to zero."""
    query, key, value, upstream = arrays(13, 0.1)
    key *= 0.1
    query[..., 0], key[..., 0] = 7.0, 7.8 * np.sqrt(H)  # a logit of 54.6
    given = query, key, value, upstream
    *heads, upstream = tensors((*given[:3], 1e-15 * upstream))
    positions = PositionRange(0, 13)
    with tf.GradientTape() as tape:
        tape.watch(heads)
        inputs = AttentionInputs(*heads, positions, positions, DotProduct(), tile_sizes=SMALL)
        loss = tf.reduce_sum(Causal().plan.attend(inputs)[0] * upstream)
    none = np.zeros_like(given[3])  # what `expected` has beside the gradient of the output
    truth = [x - y for x, y in zip(expected(*given)[2:], expected(*given[:3], none)[2:])]
    check([1e15 * x for x in tape.gradient(loss, heads)], truth, atol=1e-3)


@pytest.mark.parametrize("dtype, atol", [("float64", 1e-12), ("bfloat16", 0.06)])
def test_other_precisions(dtype, atol, loops):
    given = *arrays(13), padding(13)
    results = run(*tensors(given, dtype), score=DotProduct(scaled=False))
    query, *others = given
    *truth, by_query, by_key, by_value = expected(np.sqrt(H) * query, *others)
    check(results, (*truth, by_query * np.sqrt(H), by_key, by_value), atol)
    assert results[0].dtype == results[2].dtype == dtype
    assert results[1].dtype == ("float64" if dtype == "float64" else "float32")


def test_a_graph_of_any_number_of_sequences(loops):
    given = *arrays(7), padding(7)
    specs = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in tensors(given)]
    graph = tf.function(run, specs, autograph=False)
    check(graph(*tensors(given)), expected(*given))


def test_no_sequences_have_no_outputs():
    query, key, value, upstream = (x[:0] for x in arrays(7))
    output, _, *gradients = run(*tensors((query, key, value, upstream)))
    shapes = [x.shape for x in (output, *gradients)]
    assert shapes == [x.shape for x in (value, query, key, value)]


@pytest.mark.parametrize("case", ["score", "pattern", "dropout", "half precision"])
def test_what_only_the_loop_computes_is_left_to_it(case, loops):
    query, key, value, _ = tensors(arrays(5), "float16" if "half" in case else "float32")
    positions = PositionRange(0, 5)
    score = Additive(units=3) if case == "score" else DotProduct()
    if case == "score":
        score.build(query.shape, key.shape)
    inputs = AttentionInputs(query, key, value, positions, positions, score, tile_sizes=SMALL)
    if case == "pattern":
        inputs = inputs.restricted(Local(2).mask_mod)
    if case == "dropout":
        inputs = inputs.replace(dropout_fn=lambda weights, seed: weights)
    with pytest.raises(AssertionError, match="a loop over tiles"):
        Causal().plan.attend(inputs)


def layers(**arguments):
    """The same causal layer in halves and from the whole matrix of scores."""
    both = [
        MultiHeadAttention(2, 5, pattern="causal", implementation=name, **arguments)
        for name in ("blockwise", "dense")
    ]
    for layer in both:
        layer.build((None, 13, 7))
        layer.tile_sizes = SMALL
    both[1].set_weights(both[0].get_weights())
    return both


def model_of(layer):
    inputs = keras.Input((13, 7))
    return keras.Model(inputs, layer(inputs, inputs))


def test_a_layer_for_each_time_step(loops):
    x = np.random.default_rng(0).standard_normal((2, 3, 13, 7), "float32")
    own, whole = (keras.layers.TimeDistributed(model_of(layer))(x) for layer in layers())
    np.testing.assert_allclose(own, whole, atol=1e-6)


def test_a_mixed_policy_multiplies_in_bfloat16(loops):
    x = np.random.default_rng(0).standard_normal((3, 13, 7), "float32")
    own, whole = (layer(x, x) for layer in layers(dtype="mixed_bfloat16"))
    assert own.dtype == whole.dtype == "bfloat16"
    np.testing.assert_allclose(*(tf.cast(y, "float32") for y in (own, whole)), atol=0.03)


@pytest.mark.slow
def test_an_export_of_a_fixed_length_gives_the_same(tmp_path, loops):
    layer, whole = layers()
    x = np.random.default_rng(0).standard_normal((3, 13, 7), "float32")
    model_of(layer).export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.serve(x), whole(x, x), atol=1e-6)
