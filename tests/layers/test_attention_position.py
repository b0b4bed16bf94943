"""Attention whose queries and keys are turned by their positions: every score, plan and cache."""

import numpy as np
import oracles
import pytest
from index_sets import NUM_HEADS, W
from keras import ops

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.positions import Rotary, Sinusoidal

B, T, S, D, H = 2, 5, 7, 11, 6
LONG = 2 * W + 5
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
LONG_X = oracles.random(B, LONG, D)


def built(x=X, value=None, **arguments):
    layer = MultiHeadAttention(NUM_HEADS, H, position="rotary", **arguments)
    layer.build(x.shape, (x if value is None else value).shape)
    oracles.scramble(layer, scale=0.5)
    return layer


def turned(x, places):
    numbers = x[..., 0::2] + 1j * x[..., 1::2]
    angles = places[..., None] * 10000.0 ** (-np.arange(0, H, 2) / H)
    numbers = numbers * np.exp(1j * angles)
    return np.stack([numbers.real, numbers.imag], axis=-1).reshape(x.shape)


def attention(layer, query, value, query_places, key_places, allowed):
    """The formula, with queries and keys turned and values as they are."""
    weights = oracles.attention_weights(layer)
    output = np.zeros((*query.shape[:2], D)) + weights["output_bias"]
    scores = np.zeros((B, NUM_HEADS, query.shape[1], value.shape[1]))
    for b in range(B):
        q, k, v = (
            oracles.project(x[b].astype("float64"), weights[f"{n}_kernel"], weights[f"{n}_bias"])
            for n, x in (("query", query), ("key", value), ("value", value))
        )
        q, k = turned(q, query_places[b]), turned(k, key_places[b])
        for n, t in np.ndindex(NUM_HEADS, query.shape[1]):
            shared = n * len(k) // NUM_HEADS
            logits = [oracles.scaled_dot(q[n, t], key) for key in k[shared]]
            scores[b, n, t] = oracles.softmax(logits, allowed[t])
            output[b, t] += scores[b, n, t] @ v[shared] @ weights["output_kernel"][n]
    return output, scores


def test_oracle():
    """More keys than queries, whose positions are then the last; and positions of each row."""
    layer = built(X, CONTEXT, num_key_value_heads=1)
    everything = np.ones((T, S), bool)
    defaults = np.tile(np.arange(S - T, S), (B, 1)), np.tile(np.arange(S), (B, 1))
    rng = np.random.default_rng(0)
    positions = rng.integers(0, 30, (B, T)), rng.integers(0, 30, (B, S))
    for places, call in (
        (defaults, {}),
        (positions, {"query_positions": positions[0], "key_positions": positions[1]}),
        ((positions[0], defaults[1]), {"query_positions": positions[0]}),
        ((defaults[0], positions[1]), {"key_positions": positions[1]}),
    ):
        output, scores = layer(X, CONTEXT, return_attention_scores=True, **call)
        expected, weights = attention(layer, X, CONTEXT, *places, everything)
        np.testing.assert_allclose(output, expected, atol=2e-5)
        np.testing.assert_allclose(scores, weights, atol=1e-5)


def test_cached_keys_stand_where_the_call_says():
    """Rows that begin at positions of their own, as prompts of different length do."""
    layer = built(pattern="causal")
    places = np.array([[0, 1, 2, 3, 4, 5, 6], [3, 4, 9, 10, 11, 20, 21]])
    now = places[:, :T]
    whole = layer(X, X, query_positions=now, key_positions=now)
    cache, outputs = KVCache(T + 2, whole=True).initial(layer, B), []
    for start, end in ((0, 2), (2, 3), (3, T)):
        piece = ops.array(X[:, start:end])
        output, cache = layer(
            piece, piece, cache=cache, query_positions=places[:, start:end], key_positions=places
        )
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=2e-5)


def test_a_complete_cache_keeps_its_keys_where_they_stand():
    layer, key_positions = built(X, CONTEXT), np.array([0, 2, 3, 7, 8, 9, 30])
    cache = layer.context_cache(ops.array(CONTEXT), key_positions=key_positions)
    whole = layer(X, CONTEXT, key_positions=key_positions)
    np.testing.assert_allclose(layer(X, None, cache=cache)[0], whole, atol=2e-5)
    cache = layer.context_cache(ops.array(CONTEXT), ops.array(CONTEXT), key_positions)
    np.testing.assert_allclose(layer(X, None, cache=cache)[0], whole, atol=2e-5)


def test_half_precision():
    """With a position that the user made, which keeps a policy of its own."""
    reference, position = built(LONG_X), Rotary(dtype="float32")
    layer = MultiHeadAttention(NUM_HEADS, H, position=position, dtype="mixed_float16")
    layer.build(LONG_X.shape)
    layer.set_weights(reference.get_weights())
    expected = np.asarray(reference(LONG_X, LONG_X))
    output = oracles.numpy_of(layer(LONG_X, LONG_X))
    assert 0 < np.abs(output - expected).max() < 2.0**-8 * np.abs(expected).max()
    x = ops.cast(LONG_X, layer.compute_dtype)
    stepped, cache = layer(x, x, cache=KVCache(LONG).initial(layer, B))
    assert cache["key"].dtype == layer.compute_dtype
    np.testing.assert_allclose(oracles.numpy_of(stepped), output, atol=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: MultiHeadAttention(2, H, position=Sinusoidal()), r"position=Sinusoidal\(\)"),
        (lambda: MultiHeadAttention(2, 5, position="rotary").build(X.shape), "even.*5"),
        (lambda: built()(X, X, query_positions=[1, 2]), r"`query_positions`.*\(5,\).*\(2,\)"),
        (lambda: built()(X, X, key_positions=[1, 2]), r"`key_positions`.*\(5,\).*\(2,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
