"""Norms of queries and keys: before the position and the cache, each with a gain of its own."""

import numpy as np
import oracles
import pytest
from index_sets import NUM_HEADS, W
from keras import ops

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.norms import RMSNorm
from keras_attn.patterns import LSH

B, T, S, H, D = 2, 5, 7, 6, 11
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)


def built(x=X, value=None, qk_norm="rms_norm", **arguments):
    layer = MultiHeadAttention(NUM_HEADS, H, qk_norm=qk_norm, **arguments)
    layer.build(x.shape, (x if value is None else value).shape)
    oracles.scramble(layer)
    return layer


def rms(x, gain):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * np.asarray(gain)


def test_heads_may_be_normalised_together():
    """Each head has a gain of its own, and keys have as many as heads of keys."""
    heads, shared = 4, 2
    norm = RMSNorm()
    options = {"qk_norm": norm, "qk_norm_axis": "heads", "num_key_value_heads": shared}
    layer = MultiHeadAttention(heads, H, **options)
    layer.build(X.shape, CONTEXT.shape)
    oracles.scramble(layer)
    weights = oracles.attention_weights(layer)
    q, k = (
        np.einsum("btd,dnh->btnh", x, weights[f"{name}_kernel"]) + weights[f"{name}_bias"]
        for name, x in (("query", X), ("key", CONTEXT))
    )
    q = rms(q.reshape(B, T, -1), layer.qk_norm.scale).reshape(q.shape)
    k = rms(k.reshape(B, S, -1), layer.key_norm.scale).reshape(k.shape)
    assert layer.key_norm.scale.shape == (shared * H,)
    assert not norm.built  # the layer has copies
    k = np.repeat(k, heads // shared, axis=2)
    logits = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(H)
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    _, scores = layer(X, CONTEXT, return_attention_scores=True)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_the_cache_keeps_normalised_keys():
    options = {"position": "rotary", "num_key_value_heads": 1, "qk_norm_axis": "heads"}
    layer = built(pattern="causal", **options)
    whole, cache, outputs = layer(X, X), KVCache(T + 2).initial(layer, B), []
    for start, end in ((0, 2), (2, 3), (3, T)):
        piece = ops.array(X[:, start:end])
        output, cache = layer(piece, piece, cache=cache)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=2e-5)
    keys = layer.project(ops.array(X), "key")[0][:, :, 0]  # at position 0, which turns nothing
    np.testing.assert_allclose(cache["key"][:, :, 0], keys, atol=1e-6)
    complete = layer.context_cache(ops.array(X))
    np.testing.assert_allclose(complete["key"], cache["key"][:, :, :T], atol=1e-5)


@pytest.mark.slow
def test_shared_queries_and_keys_have_one_norm():
    x = oracles.random(B, 2 * W, D)
    options = {"score": "shared_qk", "pattern": LSH(4, num_buckets=4), "position": "rotary"}
    layer = built(x, implementation="blockwise", **options)
    assert layer.key_norm is None and layer.qk_norm.built
    shapes = [tuple(weight.shape) for weight in layer.qk_norm.weights]
    assert shapes == [(H,)]
    seen = []

    plan = layer.pattern.plan
    attend = plan.attend
    plan.attend = lambda inputs, log_weight: seen.append(inputs) or attend(inputs, log_weight)
    layer(ops.array(x), ops.array(x))
    assert seen[0].key is not seen[0].query  # two tensors
    same = ops.array(x)
    layer(same, same)
    assert seen[1].key is seen[1].query


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="Unknown norm.*'rms_norm'.*norm='rms'"):
        MultiHeadAttention(2, H, qk_norm="rms")
    with pytest.raises(ValueError, match="`qk_norm_axis` must be one of 'head', 'heads'"):
        MultiHeadAttention(2, H, qk_norm="rms_norm", qk_norm_axis="all")
