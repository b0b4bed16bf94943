"""MultiHeadAttention's masks: nothing leaks, empty rows are zero, implicit masks are honoured."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops
from marks import slow

from keras_attn.layers import MultiHeadAttention, TokenEmbedding

B, T, S, N, H, D = 2, 5, 7, 3, 4, 11
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.array([[1, 1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1, 0]], bool)
GARBAGE = oracles.random(B, S, D, seed=1, scale=1e3)


def built(length=T, keys=S, **arguments):
    layer = MultiHeadAttention(N, H, **arguments)
    layer.build((B, length, D), (B, keys, D))
    oracles.scramble(layer)
    return layer


def runner(layer, in_graph=False, **arguments):
    """A function of arrays that runs `layer`, dropout masks repeated."""

    def call(query, value, *masks):
        keywords = {"value_mask": masks[0]} if masks else {}
        output = layer(query, value, **keywords, **arguments)
        return output[0] if isinstance(output, tuple) else output

    run = tf.function(call) if in_graph else call

    def seeded(*arrays):
        if layer.dropout:
            layer.seed_generator.state.assign([3, 0])
        return ops.convert_to_numpy(run(*(tf.constant(a) for a in arrays)))

    return seeded


# What reads the weights beside the output.
ALL = {"training": True, "return_attention_scores": True}


@pytest.mark.parametrize(
    "arguments, call",
    [({"pattern": "causal", "dropout": 0.4}, ALL), ({}, {"use_causal_mask": True})],
    ids=str,
)
def test_no_leak_from_the_future(arguments, call):
    run = runner(built(keys=T, **arguments), **call)
    before = run(X, X)
    for t in (0, 2):
        changed = X.copy()
        changed[:, t + 1 :] = GARBAGE[:, t + 1 : T]
        after = run(changed, changed)
        np.testing.assert_array_equal(after[:, : t + 1], before[:, : t + 1])
        assert np.all(np.any(after[:, t + 1 :] != before[:, t + 1 :], axis=-1))


@pytest.mark.parametrize("in_graph", [False, slow(True)])
def test_no_leak_from_padding(in_graph):
    run = runner(built(dropout=0.4), in_graph, **ALL)
    changed = np.where(REAL[..., None], CONTEXT, GARBAGE)
    before = run(X, CONTEXT, REAL)
    np.testing.assert_array_equal(run(X, changed, REAL), before)
    changed[:, 0] += 1
    assert np.all(np.any(run(X, changed, REAL) != before, axis=-1))


def empty_rows(query, value, layer, value_mask, attention_mask):
    with tf.GradientTape() as tape:
        tape.watch([query, value])
        output, scores = layer(
            query,
            value,
            value_mask=value_mask,
            attention_mask=attention_mask,
            return_attention_scores=True,
        )
        loss = tf.reduce_sum(output**2)
    return output, scores, *tape.gradient(loss, [query, value, layer.query_kernel])


@pytest.mark.parametrize(
    "mode, score, policy",
    [("eager", "additive", "mixed_float16"), slow("xla", "scaled_dot", "float32")],
)
def test_a_row_with_nothing_to_attend_is_zero_with_zero_gradient(mode, score, policy):
    layer = built(score=score, dtype=policy)
    pairs = np.ones((B, N, T, S), bool)
    pairs[1, :, 2] = False  # one empty query
    pairs[1, 1, 3] = False  # one empty head of a query
    padding = np.zeros((B, S), bool)
    padding[1] = REAL[1]  # the first row of the batch has no key at all
    run = tf.function(empty_rows, jit_compile=mode == "xla") if mode != "eager" else empty_rows
    inputs = tf.constant(X), tf.constant(CONTEXT)
    results = run(*inputs, layer, tf.constant(padding), tf.constant(pairs))
    output, scores, query_gradient, value_gradient, kernel_gradient = (
        oracles.numpy_of(result) for result in results
    )
    bias = oracles.numpy_of(ops.cast(layer.output_bias, layer.compute_dtype))
    empty = np.zeros((B, T), bool)
    empty[0], empty[1, 2] = True, True
    np.testing.assert_array_equal(output[empty], np.broadcast_to(bias, output[empty].shape))
    assert np.all(output[~empty] != bias)
    assert np.all(scores[0] == 0) and np.all(scores[1, :, 2] == 0) and np.all(scores[1, 1, 3] == 0)
    assert np.all(query_gradient[empty] == 0) and np.all(value_gradient[0] == 0)
    assert np.all(np.isfinite(kernel_gradient)) and np.any(kernel_gradient != 0)
    np.testing.assert_allclose(
        scores.sum(-1), pairs.any(-1) & padding.any(-1)[:, None, None], atol=1e-6
    )


@pytest.fixture(scope="module")
def plain_layer():
    return built()


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("query_mask", "float16"),
        ("value_mask", "bfloat16"),
        ("key_mask", "float64"),
        ("attention_mask", "float32"),
    ],
)
def test_additive_masks_are_refused(plain_layer, name, dtype):
    shape = {"attention_mask": (T, S), "query_mask": (B, T)}.get(name, (B, S))
    with pytest.raises(ValueError, match=rf"`{name}` must be boolean.*{name} = additive_mask > -1"):
        plain_layer(X, CONTEXT, **{name: tf.zeros(shape, dtype)})


def test_masks_of_zeros_and_ones_are_booleans():
    layer = built()
    np.testing.assert_array_equal(
        layer(X, CONTEXT, value_mask=REAL.astype("uint8")), layer(X, CONTEXT, value_mask=REAL)
    )


@pytest.mark.parametrize(
    "name, shape",
    [
        ("value_mask", (S,)),
        ("value_mask", (B, S + 1)),
        ("key_mask", (B, S + 1)),
        ("query_mask", (B, T + 1)),
        ("attention_mask", (S,)),
        ("attention_mask", (S, T)),
        ("attention_mask", (B + 1, T, S)),
        ("attention_mask", (B, N + 1, T, S)),
        ("attention_mask", (1, B, N, T, S)),
    ],
)
def test_masks_of_wrong_shape_are_refused(plain_layer, name, shape):
    with pytest.raises(ValueError, match=rf"`{name}`.*Received.*{shape[0]}"):
        plain_layer(X, CONTEXT, **{name: np.ones(shape, bool)})


TOKENS = np.array([[5, 3, 8, 0, 0, 0, 0], [5, 0, 8, 1, 1, 2, 0]])  # zeros where REAL is False


def test_implicit_mask_equals_explicit_and_is_passed_on():
    layer, embedding = built(keys=S), TokenEmbedding(9, D)
    context = embedding(TOKENS)
    queries = embedding(TOKENS[:, :T])
    implicit = layer(queries, context)
    explicit = layer(queries, ops.array(ops.convert_to_numpy(context)), value_mask=REAL)
    np.testing.assert_array_equal(implicit, explicit)
    np.testing.assert_array_equal(implicit._keras_mask, REAL[:, :T])
    unmasked = layer(queries, ops.array(ops.convert_to_numpy(context)))
    assert np.any(implicit != unmasked)


def test_an_explicit_mask_replaces_the_implicit_one():
    layer, embedding = built(), TokenEmbedding(9, D)
    everything = layer(X, embedding(TOKENS), value_mask=np.ones((B, S), bool))
    plain = ops.array(ops.convert_to_numpy(embedding(TOKENS)))
    np.testing.assert_array_equal(everything, layer(X, plain))


def test_a_key_must_be_real_by_both_masks():
    layer, others = built(), np.array([[0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 0]], bool)
    both = layer(X, CONTEXT, value_mask=REAL, key_mask=others)
    np.testing.assert_array_equal(both, layer(X, CONTEXT, value_mask=REAL & others))
    np.testing.assert_array_equal(
        layer(X, CONTEXT, key_mask=REAL), layer(X, CONTEXT, value_mask=REAL)
    )


def test_query_mask_becomes_the_mask_of_the_output_and_changes_no_number():
    layer = built()
    output, _ = layer(X, CONTEXT, query_mask=REAL[:, :T], return_attention_scores=True)
    np.testing.assert_array_equal(output._keras_mask, REAL[:, :T])
    np.testing.assert_array_equal(output, layer(X, CONTEXT))


def test_no_warning_that_a_mask_is_lost(recwarn):
    tokens = keras.Input((None,), dtype="int32")
    x = TokenEmbedding(9, D)(tokens)
    keras.Model(tokens, MultiHeadAttention(N, H)(x, x))(TOKENS)
    assert [str(w.message) for w in recwarn if "mask" in str(w.message)] == []
