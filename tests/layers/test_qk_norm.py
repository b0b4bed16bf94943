"""Norms of queries and keys: before the position and the cache, each with a gain of its own."""

import keras
import numpy as np
import oracles
import pytest
from index_sets import NUM_HEADS, W
from keras import ops

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.norms import RMSNorm
from keras_attn.patterns import LSH, Local

B, T, S, H, D = 2, 5, 7, 6, 11
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)


def built(x=X, value=None, qk_norm="rms_norm", **arguments):
    layer = MultiHeadAttention(NUM_HEADS, H, qk_norm=qk_norm, **arguments)
    layer.build(x.shape, (x if value is None else value).shape)
    oracles.scramble(layer)
    return layer


def rms(x, gain):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * np.asarray(gain)


def turned(x, places):
    numbers = x[..., 0::2] + 1j * x[..., 1::2]
    numbers = numbers * np.exp(1j * places[:, None] * 10000.0 ** (-np.arange(0, H, 2) / H))
    return np.stack([numbers.real, numbers.imag], axis=-1).reshape(x.shape)


def test_heads_are_normalised_before_their_position():
    """The other order is another function, since the gain differs by component."""
    layer = built(X, CONTEXT, position="rotary", num_key_value_heads=1)
    weights = oracles.attention_weights(layer)
    gains = layer.qk_norm.scale, layer.key_norm.scale
    places = np.arange(S - T, S), np.arange(S)
    expected, other_order = np.zeros((2, B, NUM_HEADS, T, S))
    for b in range(B):
        heads = [
            oracles.project(x[b].astype("float64"), weights[f"{n}_kernel"], weights[f"{n}_bias"])
            for n, x in (("query", X), ("key", CONTEXT))
        ]
        parts = list(zip(heads, gains, places, strict=True))
        before = [turned(rms(x, gain), place) for x, gain, place in parts]
        after = [rms(turned(x, place), gain) for x, gain, place in parts]
        for (q, k), weights_of_order in ((before, expected), (after, other_order)):
            for n, t in np.ndindex(NUM_HEADS, T):
                logits = [oracles.scaled_dot(q[n, t], key) for key in k[0]]
                weights_of_order[b, n, t] = oracles.softmax(logits, [True] * S)
    _, scores = layer(X, CONTEXT, return_attention_scores=True)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.abs(scores - other_order).max() > 1e-2


def test_the_scale_of_the_kernels_does_not_matter():
    layer = built(use_bias=False)
    before = np.asarray(layer(X, X))
    for kernel in (layer.query_kernel, layer.key_kernel):
        kernel.assign(1000 * kernel)
    np.testing.assert_allclose(layer(X, X), before, atol=1e-5)


def test_heads_may_be_normalised_together():
    """Each head has a gain of its own, and keys have as many as heads of keys."""
    heads, shared = 4, 2
    options = {"qk_norm": "rms_norm", "qk_norm_axis": "heads", "num_key_value_heads": shared}
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


def test_shared_queries_and_keys_have_one_norm():
    x = oracles.random(B, 2 * W, D)
    layer = built(x, score="shared_qk", pattern=LSH(4, num_buckets=4), implementation="blockwise")
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


def test_plan_equals_the_matrix_and_gains_follow_those_of_keras():
    found = []
    for implementation in ("blockwise", "dense"):
        layer = built(pattern=Local(3), implementation=implementation, use_gate=True)
        found.append(np.asarray(layer(X, X)))
    np.testing.assert_allclose(*found, atol=1e-5)
    shapes = [tuple(weight.shape) for weight in layer.weights]
    assert shapes[10:] == [(H,), (H,)]  # after five kernels and their biases


@pytest.mark.slow
def test_save_and_load(tmp_path):
    x = keras.Input((None, D))
    norm = RMSNorm(1e-3, offset=1.0)
    layer = MultiHeadAttention(NUM_HEADS, H, qk_norm=norm, position="rotary", sinks=True)
    model = keras.Model(x, layer(x, x))
    oracles.scramble(model)
    assert not norm.built  # the layer has copies
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(X), model(X))
    assert repr(loaded.layers[-1].qk_norm) == "RMSNorm(epsilon=0.001, offset=1.0)"
    again = MultiHeadAttention.from_config(layer.get_config())
    assert not again.qk_norm.built and again.get_config()["qk_norm"]["config"]["epsilon"] == 1e-3


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="Unknown norm.*'rms_norm'.*norm='rms'"):
        MultiHeadAttention(2, H, qk_norm="rms")
    with pytest.raises(ValueError, match="`qk_norm_axis` must be one of 'head', 'heads'"):
        MultiHeadAttention(2, H, qk_norm="rms_norm", qk_norm_axis="all")
