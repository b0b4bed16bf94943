"""Decoding with a cache equals one call on the whole sequence."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache

B, T, S, N, H, D = 3, 7, 5, 4, 6, 11
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)

LAYERS = {
    "plain": {},
    "shared heads": {"num_key_value_heads": 2},
    "value_dim": {"value_dim": 8},
    "additive": {"score": "additive"},
}


def built(value=X, **arguments):
    layer = MultiHeadAttention(N, H, **arguments)
    layer.build(X.shape, value.shape)
    oracles.scramble(layer)
    return layer


def decode(layer, x, chunks, slots, **arguments):
    """Outputs of `x` given in pieces of the given lengths, joined."""
    cache, outputs, start = KVCache(slots).initial(layer, B), [], 0
    for length in chunks:
        piece = ops.array(x[:, start : start + length])
        output, cache = layer(piece, piece, cache=cache, **arguments)
        outputs.append(output)
        start += length
    if slots is None:  # a cache that grows
        assert cache["index"] is None and cache["key"].shape[2] == start
    else:
        assert int(cache["index"]) == start and cache["key"].shape[2] == slots
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("chunks", [[1] * T, [3, 1, 2, 1], [T]], ids=str)
@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("slots", [T, T + 4, None])
def test_limit_cached_equals_full(arguments, chunks, slots):
    layer = built(**arguments, pattern="causal")
    np.testing.assert_allclose(decode(layer, X, chunks, slots), layer(X, X), atol=1e-5)


def test_use_causal_mask_and_explicit_positions():
    layer = built()
    full = layer(X, X, use_causal_mask=True)
    stepped = decode(layer, X, [2, 5], T, use_causal_mask=True)
    np.testing.assert_allclose(stepped, full, atol=1e-5)
    causal = built(pattern="causal")
    cache = KVCache(T).initial(causal, B)
    _, cache = causal(X[:, :4], X[:, :4], cache=cache)
    rest = X[:, 4:]
    output, _ = causal(rest, rest, cache=cache, query_positions=np.arange(4, T))
    np.testing.assert_allclose(output, full[:, 4:], atol=1e-5)


def test_empty_slots_are_never_attended():
    """Not even with a dense pattern, and whatever the slots hold."""
    layer = built()
    cache = KVCache(T).initial(layer, B)
    full = {k: v + 1e3 if k != "index" else v for k, v in cache.items()}
    piece = X[:, :2]
    output, cache = layer(piece, piece, cache=cache)
    same, _, _ = layer(piece, piece, cache=full, return_attention_scores=True)
    np.testing.assert_array_equal(output, same)
    np.testing.assert_allclose(output, layer(piece, piece), atol=1e-6)
    _, scores, _ = layer(X[:, 2:3], X[:, 2:3], cache=cache, return_attention_scores=True)
    assert scores.shape == (B, N, 1, T)
    assert np.all(scores[..., 3:] == 0) and np.all(scores[..., :3] > 0)


def test_padding_of_ragged_prompts_is_masked_by_slot():
    """Rows that end at different lengths decode like each row alone."""
    layer = built(pattern="causal")
    lengths = [3, 1, 2]
    slots = np.arange(T)
    real = np.stack([(slots < n) | (slots >= 3) for n in lengths])
    cache = KVCache(T).initial(layer, B)
    prompt, new = X[:, :3], X[:, 3:4]
    _, cache = layer(prompt, prompt, cache=cache, padding_mask=real)
    output, _ = layer(new, new, cache=cache, padding_mask=real)
    for b, n in enumerate(lengths):
        alone = np.concatenate([prompt[b : b + 1, :n], new[b : b + 1]], axis=1)
        np.testing.assert_allclose(output[b], layer(alone, alone)[0, -1:], atol=1e-5)


@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
def test_limit_complete_cache_equals_the_context(arguments):
    layer = built(CONTEXT, **arguments)
    mask = np.arange(S)[None] < np.array([[5], [2], [3]])
    cache = layer.context_cache(ops.array(CONTEXT))
    output, same = layer(X, cache=cache, padding_mask=mask)
    np.testing.assert_allclose(output, layer(X, CONTEXT, padding_mask=mask), atol=1e-5)
    assert same is cache or all(np.array_equal(same[k], cache[k]) for k in cache)


def test_complete_cache_of_a_context_with_keys_of_its_own():
    keys = oracles.random(B, S, 13)
    layer = MultiHeadAttention(N, H)
    layer.build(X.shape, CONTEXT.shape, keys.shape)
    cache = layer.context_cache(ops.array(CONTEXT), ops.array(keys))
    output, _ = layer(X, cache=cache)
    np.testing.assert_allclose(output, layer(X, CONTEXT, keys), atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_graph_serves_every_step(jit_compile):
    layer = built(pattern="causal")
    traces = []

    @tf.function(jit_compile=jit_compile)
    def step(piece, cache):
        traces.append(1)
        return layer(piece, piece, cache=cache)

    cache, outputs = KVCache(T).initial(layer, B), []
    for t in range(T):
        output, cache = step(tf.constant(X[:, t : t + 1]), cache)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), layer(X, X), atol=1e-5)
    assert len(traces) == 1


def test_the_cache_has_the_compute_dtype():
    layer = built(dtype="mixed_bfloat16")
    cache = KVCache(T).initial(layer, B)
    assert cache["key"].dtype == cache["value"].dtype == tf.bfloat16
    x = ops.cast(X, "bfloat16")
    output, cache = layer(x, x, cache=cache)
    assert output.dtype == cache["key"].dtype == layer.context_cache(x)["key"].dtype == tf.bfloat16
