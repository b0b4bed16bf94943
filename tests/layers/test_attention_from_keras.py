"""Weights of keras.layers.MultiHeadAttention give its outputs, and go back."""

import keras
import numpy as np
import oracles
import pytest
from marks import slow_but

from keras_attn.layers import MultiHeadAttention

B, T, S, N, H, HV, D, DV, DK = 2, 3, 7, 5, 4, 6, 11, 13, 17
QUERY = oracles.random(B, T, D)
VALUE, KEY = oracles.random(B, S, DV), oracles.random(B, S, DK)
PAIRS = np.random.default_rng(0).random((B, T, S)) < 0.5
PAIRS[..., 0] = True

CASES = {
    "self, causal": ((QUERY, QUERY), {}, {"use_causal_mask": True}),
    "cross": ((QUERY, VALUE), {"output_shape": 19}, {"attention_mask": PAIRS}),
    "several axes": ((QUERY, VALUE), {"output_shape": (3, 19), "value_dim": HV}, {}),
    "gate, key apart": ((QUERY, VALUE, KEY), {"use_gate": True, "value_dim": HV}, {}),
    "gate without bias": ((QUERY, QUERY), {"use_gate": True, "use_bias": False}, {}),
}


@pytest.mark.parametrize("name", slow_but(["self, causal", "gate, key apart"], CASES))
def test_weights_move_both_ways(name):
    inputs, arguments, call = CASES[name]
    theirs = keras.layers.MultiHeadAttention(N, H, **arguments)
    theirs.build(*(x.shape for x in inputs))
    oracles.scramble(theirs)
    ours = MultiHeadAttention(N, H, **arguments)
    ours.build(*(x.shape for x in inputs))
    ours.set_weights(theirs.get_weights())
    expected, expected_scores = theirs(*inputs, **call, return_attention_scores=True)
    output, scores = ours(*inputs, **call, return_attention_scores=True)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    oracles.scramble(ours, seed=1)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(theirs(*inputs, **call), ours(*inputs, **call), atol=1e-5)


def test_a_score_has_its_weights_after_those_of_keras():
    theirs = keras.layers.MultiHeadAttention(N, H)
    theirs.build(QUERY.shape, VALUE.shape)
    ours = MultiHeadAttention(N, H, score="additive")
    ours.build(QUERY.shape, VALUE.shape)
    shapes = [w.shape for w in ours.weights]
    assert shapes[:8] == [w.shape for w in theirs.weights]
    assert shapes[8:] == [(N, H, H), (N, H, H), (N, H), (N, H)]


def test_integers_are_read_as_floats():
    x = (np.abs(QUERY) > 0.5).astype("uint8")
    theirs, ours = keras.layers.MultiHeadAttention(N, H), MultiHeadAttention(N, H)
    for layer in (theirs, ours):
        layer.build(x.shape, x.shape)
    oracles.scramble(theirs)
    ours.set_weights(theirs.get_weights())
    output = ours(x, x)
    assert output.dtype == "float32"
    expected = theirs(*2 * [x.astype("float32")])
    np.testing.assert_allclose(output, expected, atol=1e-5)
