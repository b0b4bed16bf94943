"""MultiHeadAttention by its pattern's plan equals MultiHeadAttention by the matrix of scores."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from gradients import output_and_gradients
from index_sets import CASES, NUM_HEADS, SMALL_TILES, W
from marks import slow

from keras_attn.attention.plans import Window
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Causal, Dense, Local, Pattern, PerHead

B, T, H, D = 4, 37, 4, 6
X = oracles.random(B, T, D)
CONTEXT = oracles.random(B, T + W, D, seed=1)
REAL = np.arange(T + W)[None] < np.array([[T + W], [T], [3], [0]])


def built(pattern, plan, **arguments):
    pattern = CASES[pattern][0] if isinstance(pattern, str) else pattern
    layer = MultiHeadAttention(NUM_HEADS, H, pattern=pattern, implementation=plan, **arguments)
    layer.tile_sizes = SMALL_TILES
    layer.build((B, T, D), (B, T, D))
    oracles.scramble(layer)
    return layer


def both_plans(pattern, call, **arguments):
    """The output, and the gradients of weights and inputs, by the tiles and by the matrix."""
    layers = (built(pattern, plan, **arguments) for plan in ("blockwise", "dense"))
    return zip(*(output_and_gradients(layer, X, **call) for layer in layers), strict=True)


def assert_equal(pairs, atol=2e-5):
    for tiles, matrix in pairs:
        scale = max(1.0, np.abs(matrix).max())
        np.testing.assert_allclose(tiles / scale, matrix / scale, atol=atol)


@pytest.mark.slow
def test_an_empty_sequence_has_an_empty_output():
    layer = built("nested", "blockwise")
    attend = tf.function(
        lambda x, real: layer(x, x, value_mask=real),
        [tf.TensorSpec([B, None, D]), tf.TensorSpec([B, None], "bool")],
    )
    assert attend(X[:, :0], REAL[:, :0]).shape == (B, 0, D)


@pytest.mark.parametrize("pattern", [slow("local around"), "heads in rows"])
def test_use_causal_mask_with_a_pattern_that_looks_ahead(pattern):
    """Both with `Causal()`, whether the pattern is one or one for each head."""
    tiles, matrix = (
        np.asarray(built(pattern, plan)(X, X, use_causal_mask=True))
        for plan in ("blockwise", "dense")
    )
    np.testing.assert_allclose(tiles, matrix, atol=2e-5)
    changed = np.concatenate([X[:, :9], -X[:, 9:]], axis=1)
    after = built(pattern, "blockwise")(changed, changed, use_causal_mask=True)
    np.testing.assert_array_equal(after[:, :9], tiles[:, :9])


@pytest.mark.slow
def test_mixed_policy():
    call = {"value_mask": REAL[:, :T]}
    assert_equal(both_plans("heads in rows", call, dtype="mixed_bfloat16"), atol=4e-2)


def test_scores_never_change_the_output():
    layer = built("heads in rows", "blockwise")
    plain = layer(X, CONTEXT, value_mask=REAL)
    call = {"value_mask": REAL, "return_attention_scores": True}
    output, scores = layer(X, CONTEXT, **call)
    np.testing.assert_array_equal(output, plain)
    np.testing.assert_array_equal(scores, built("heads in rows", "dense")(X, CONTEXT, **call)[1])


def test_masks_and_positions_of_a_call_are_obeyed():
    places = np.arange(T)[::-1].copy()
    for call in (
        {"attention_mask": np.random.default_rng(0).random((B, 1, T, T)) < 0.5},
        {"query_positions": places, "key_positions": places},
    ):
        tiles, matrix = (built("local", plan)(X, X, **call) for plan in ("blockwise", "dense"))
        np.testing.assert_array_equal(tiles, matrix)


@pytest.mark.parametrize(
    "plan, window, length, planned",
    [
        slow("blockwise", W, 3, True),
        slow("dense", W, 600, False),
        ("auto", W, 500, False),  # short
        ("auto", W, 520, True),
        ("auto", 500, 520, False),  # leaves out too little, and the matrix is small
    ],
)
def test_implementation_is_chosen_by_length(plan, window, length, planned, monkeypatch):
    calls, attend = [], Window.attend
    monkeypatch.setattr(
        Window, "attend", lambda *args, **kw: calls.append(1) or attend(*args, **kw)
    )
    x = oracles.random(1, length, D)
    MultiHeadAttention(2, 4, pattern=Local(window), implementation=plan)(x, x)
    assert bool(calls) is planned


def test_a_large_matrix_is_avoided_by_a_pattern_that_leaves_out_nothing():
    assert Local(100).plan.is_faster(48, 48, long=48)
    assert not Local(100).plan.is_faster(47, 47, long=48)


@pytest.mark.parametrize(
    "length, num_keys, pays", [(512, 512, True), (512, 700, False), (None, None, False)]
)
def test_half_a_square_pays_early(length, num_keys, pays):
    assert Causal().plan.is_faster(length, num_keys) is pays
    assert not Dense().plan.is_faster(length, num_keys)


@pytest.mark.parametrize("name", ["nested", slow("causal"), slow("strided")])
def test_more_queries_than_keys(name):
    """The queries are the last positions; before the first key, causal patterns find none."""
    layer = built(name, "blockwise")
    positions = {"query_positions": np.arange(-8, 5), "key_positions": np.arange(5)}
    query, value = X[:, :13], X[:, :5]
    np.testing.assert_allclose(layer(query, value), layer(query, value, **positions), atol=1e-6)


def test_an_unknown_plan_is_refused():
    with pytest.raises(
        ValueError, match=r"`implementation` must be one of .*implementation='fast'"
    ):
        MultiHeadAttention(2, 4, implementation="fast")


def test_a_pattern_per_head_of_another_number_of_heads_is_refused():
    for plan in ("blockwise", "dense"):
        layer = MultiHeadAttention(2, 4, pattern=PerHead([Local(3)] * 3), implementation=plan)
        with pytest.raises(ValueError, match="3 patterns, 2 heads"):
            layer(X, X)


def test_the_gradient_of_a_long_sequence_is_finite():
    layer = MultiHeadAttention(2, 4, pattern=Local(64))
    x = tf.constant(oracles.random(1, 3001, D))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(layer(x, x) ** 2)
    gradient = tape.gradient(loss, x).numpy()
    assert np.all(np.isfinite(gradient)) and np.all(np.any(gradient != 0, axis=-1))


def test_a_pattern_of_ones_own_has_a_plan():
    @keras.saving.register_keras_serializable("test")
    class Even(Pattern):
        def mask_mod(self, i, j):
            return (i + j) % 2 == 0

    assert_equal(both_plans(Even(), {"value_mask": REAL[:, :T]}))
