"""Stochastic depth: its law, caches, and the same rows dropped when the backward pass repeats."""

import functools

import keras
import numpy as np
import oracles
import pytest
from depth.twins import in_turn, training_gradients
from marks import slow

from keras_attn.depth import ACT, Recurrent, Reversible, Stack
from keras_attn.depth import reversible as module
from keras_attn.layers import FeedForward, MultiHeadAttention, ParallelBlock, TransformerBlock

B, T, D = 3, 5, 6
X = oracles.random(B, T, D)


def block(index=0, residual="pre_norm", kind=TransformerBlock, dropout=0.0):
    attention = MultiHeadAttention(2, 3, pattern="causal", dropout=dropout)
    return kind(attention, FeedForward(7), residual=residual, dropout=dropout)


def built(num_layers=3, drop=0.5, depth=Stack, make=block, **arguments):
    """Return a depth with the same weights and seeds at each call."""
    keras.utils.set_random_seed(0)
    layer = depth(make, num_layers, drop=drop, **arguments)
    layer.build((None, None, D))
    return layer


def test_a_row_leaves_a_block_out_or_divides_its_change_by_the_probability_of_keeping_it():
    rows, drop, layers = 2000, 0.6, 3
    layer = built(layers, drop)
    x = np.tile(X[:1], (rows, 1, 1))
    _, outputs = layer(x, training=True, return_hidden_states=True)
    before, kept = x, []
    for number, after in enumerate(map(np.asarray, outputs), 1):
        probability = 1 - drop * number / layers
        kept.append(np.any(after != before, axis=(1, 2)))
        spread = 4 * np.sqrt(probability * (1 - probability) / rows)
        assert abs(kept[-1].mean() - probability) < spread
        shown = before[kept[-1]][:4]
        change = layer.blocks[number - 1](shown) - shown
        np.testing.assert_allclose(after[kept[-1]][:4], shown + change / probability, atol=1e-5)
        before = after
    # Layers and rows draw numbers of their own.
    together = (kept[1] & kept[2]).mean()
    assert abs(together - kept[1].mean() * kept[2].mean()) < 4 * 0.5 / np.sqrt(rows)


def test_a_step_that_is_left_out_adds_no_position():
    x = np.tile(X[:1], (64, 1, 1))
    keras.utils.set_random_seed(0)
    layer = Recurrent(block(residual="post_norm"), 1, position="sinusoidal", drop=0.5)
    output = np.asarray(layer(x, training=True))
    kept = np.any(output != x, axis=(1, 2))
    assert 0 < kept.sum() < 64  # half of the rows are as they were


def test_a_block_for_several_layers_is_refused():
    with pytest.raises(ValueError, match="one block for all layers makes a `Recurrent`"):
        Stack([block()] * 2)


@pytest.mark.slow
def test_without_drop_or_training_nothing_changes():
    plain, layer = built(1, drop=0.0), built(1, drop=0.5)
    layer.set_weights(plain.get_weights())
    expected = plain(X)
    np.testing.assert_array_equal(plain(X, training=True), expected)
    np.testing.assert_array_equal(layer(X), expected)
    assert np.any(np.asarray(layer(X, training=True)) != expected)
    assert len(plain.variables) == len(plain.weights) == len(layer.weights)


@pytest.mark.parametrize("residual", ["post_norm", "gate"])
def test_a_block_that_is_left_out_is_the_identity_whatever_its_residual(residual):
    layer = built(1, 0.999999, make=functools.partial(block, residual=residual))
    oracles.scramble(layer)
    expected = X if layer.norm is None else layer.norm(X)
    np.testing.assert_array_equal(layer(X, training=True), expected)


def test_a_dropped_block_writes_its_cache():
    layer = built(1, 0.999999)
    dropped, written = layer(X, cache=layer.initial_cache(B, T), training=True)
    output, cache = layer(X, cache=layer.initial_cache(B, T))
    np.testing.assert_allclose(dropped, layer.norm(X), atol=1e-6)
    assert np.any(np.asarray(dropped) != output)
    keras.tree.map_structure(np.testing.assert_array_equal, written, cache)


@pytest.mark.parametrize("kind, in_graph", [(TransformerBlock, False), slow(ParallelBlock, True)])
def test_the_same_rows_are_dropped_when_blocks_are_computed_again(kind, in_graph):
    make = functools.partial(block, kind=kind, dropout=0.2)
    results = (
        training_gradients(built(2, make=make, remat=remat), X, in_graph) for remat in (True, False)
    )
    oracles.check_each(*results, atol=1e-5, scaled=True)


@pytest.mark.slow
def test_the_same_rows_are_dropped_when_streams_are_recovered(monkeypatch):
    make = functools.partial(block, dropout=0.2)
    results = training_gradients(built(2, depth=Reversible, make=make), X)
    monkeypatch.setattr(module, "reversible", in_turn)
    expected = training_gradients(built(2, depth=Reversible, make=make), X)
    oracles.check_each(results, expected, atol=1e-4, scaled=True)
    layer = built(1, 0.999999, Reversible)
    np.testing.assert_allclose(layer(X, training=True), layer.norm(X), atol=1e-5)


@pytest.mark.slow
def test_a_stack_inside_a_stack_is_dropped_as_one_block():
    layer = built(1, 0.999999, make=lambda index: Stack(block, 2, drop=0.3))
    np.testing.assert_array_equal(layer(X, training=True), X)
    assert np.any(np.asarray(layer(X)) != X)


@pytest.mark.slow
def test_each_step_of_a_recurrent_block_is_dropped_by_itself():
    layer = built(4, 0.8, depth=Recurrent)
    _, states = layer(X, training=True, return_hidden_states=True)
    changed = np.any(np.diff([X, *states], axis=0) != 0, axis=(2, 3))  # (steps, rows)
    assert changed.any() and not changed.all()
    assert len({tuple(row) for row in changed}) > 1


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: Stack(block, 2, drop=1.0), r"`drop` must be in \[0, 1\).*drop=1.0"),
        (lambda: Recurrent(block, 2, drop=-0.1), "`drop`.*drop=-0.1"),
        (lambda: ACT(block, 2, drop=0.1), "`drop` does not fit `ACT`.*drop=0.1"),
    ],
)
def test_invalid_rates_raise(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
