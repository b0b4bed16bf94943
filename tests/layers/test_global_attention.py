"""Second projections of the first queries: the formula, every plan and mask, limiting cases."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.attention.inputs import TileSizes
from keras_attn.layers import GlobalAttention, MultiHeadAttention, add_lora
from keras_attn.memory import KVCache
from keras_attn.patterns import LSH, AdaptiveSpan, Global, Local

B, T, N, H, V, D = 2, 13, 3, 4, 2, 5
W = 3
X = oracles.random(B, T, D)
REAL = np.stack([np.arange(T) < 11, np.arange(T) < 0])  # the second row is padding only
PARTS = ("query", "key", "value", "output", "global_query", "global_key", "global_value")


def built(num_global=2, pattern=None, length=T, **arguments):
    pattern = pattern or Local(W, causal=False) | Global(num_global)
    arguments = {"value_dim": V, **arguments}
    layer = GlobalAttention(N, H, num_global=num_global, pattern=pattern, **arguments)
    layer.tile_sizes = TileSizes(chunk_scores=1, block_scores=100, least_group=4)
    layer.build((B, length, D), (B, length, D))
    for i, weight in enumerate(layer.weights):
        weight.assign(oracles.random(*weight.shape, seed=i, scale=0.7))
    return layer


def formula(layer, x, real, num_global):
    """The docstring's formula for one row (T, D), query by query, in float64."""
    x = x.astype("float64")
    w = {
        f"{name}_{kind}": oracles.numpy_of(getattr(layer, f"{name}_{kind}"))
        for name in PARTS
        for kind in ("kernel", "bias")
    }
    output, scores = np.zeros((len(x), D)) + w["output_bias"], np.zeros((N, len(x), len(x)))
    for i in range(len(x)):
        is_first = i < num_global
        names = [f"global_{n}" if is_first else n for n in ("query", "key", "value")]
        q, k, v = (
            np.einsum("td,dnh->nth", x, w[f"{n}_kernel"]) + w[f"{n}_bias"][:, None] for n in names
        )
        keys = [
            j for j in range(len(x)) if real[j] and (is_first or j < num_global or abs(i - j) < W)
        ]
        for n in range(N if keys else 0):
            e = np.exp([q[n, i] @ k[n, j] / H**0.5 for j in keys])
            scores[n, i, keys] = e / e.sum()
            output[i] += scores[n, i] @ v[n] @ w["output_kernel"][n]
    return output, scores


@pytest.mark.parametrize(
    "num_global, implementation",
    [slow(0, "blockwise"), (2, "dense"), (2, "blockwise"), slow(T + 2, "dense")],
)
def test_outputs_and_scores_equal_the_formula(num_global, implementation):
    layer = built(num_global, implementation=implementation)
    output, scores = layer(X, X, value_mask=REAL, return_attention_scores=True)
    for row in range(B):
        expected = formula(layer, X[row], REAL[row], num_global)
        np.testing.assert_allclose(output[row], expected[0], atol=2e-5)
        np.testing.assert_allclose(scores[row], expected[1], atol=1e-5)
    np.testing.assert_array_equal(layer(X, X, value_mask=REAL), output)


@pytest.mark.slow
def test_equal_projections_give_plain_attention():
    """So positions, scores, shared heads, sinks and gates act on the first queries alike."""
    arguments = {"score": "relative", "position": "rotary", "use_gate": True, "sinks": True}
    arguments["num_key_value_heads"] = 1
    layer = built(3, **arguments)
    plain = MultiHeadAttention(N, H, V, pattern=layer.pattern, **arguments)
    plain.build(X.shape, X.shape)
    for name in ("query", "key", "value"):
        for kind in ("kernel", "bias"):
            copied = getattr(layer, f"{name}_{kind}")
            getattr(layer, f"global_{name}_{kind}").assign(copied)
    own = [w for w in layer.weights if not w.name.startswith("global_")]
    plain.set_weights(own)
    mask = np.random.default_rng(0).random((B, N, T, T)) < 0.7
    for call in ({"attention_mask": mask}, {"use_causal_mask": True}):
        np.testing.assert_allclose(layer(X, X, **call), plain(X, X, **call), atol=1e-5)


def test_documents_of_packed_rows_have_the_outputs_that_they_have_alone():
    layer = built(2, implementation="blockwise")
    segments = np.array([[4] * 6 + [2] * 1 + [7] * 4 + [0] * 2, [1] * 13], "int32")
    packed = layer(X, X, segment_ids=segments)
    for row, start, end in ((0, 0, 6), (0, 6, 7), (0, 7, 11), (1, 0, 13)):
        alone = X[row : row + 1, start:end]
        np.testing.assert_allclose(packed[row, start:end], layer(alone, alone)[0], atol=2e-5)


@pytest.mark.slow
def test_queries_after_earlier_keys_have_their_own_positions():
    """As with a memory: queries are the last of all positions."""
    layer = built(5)
    whole = layer(X, X)
    np.testing.assert_allclose(layer(X[:, 3:], X), whole[:, 3:], atol=1e-5)
    np.testing.assert_allclose(layer(X[:, 9:], X), whole[:, 9:], atol=1e-5)
    places = np.random.default_rng(0).permutation(T).astype("int32")
    output = layer(X[:, places], X, query_positions=places)
    np.testing.assert_allclose(output, whole.numpy()[:, places], atol=1e-5)


@pytest.mark.slow
def test_unknown_lengths_give_the_same():
    layer = built(4)
    run = tf.function(lambda x: layer(x, x), [tf.TensorSpec((None, None, D))], autograph=False)
    for length in (1, 3, T):
        x = X[:, :length]
        np.testing.assert_allclose(run(x), layer(x, x), atol=1e-5)


@pytest.mark.slow
def test_mixed_bfloat16():
    layer = built(dtype="mixed_bfloat16")
    difference = oracles.numpy_of(layer(X, X)) - oracles.numpy_of(built()(X, X))
    assert 0 < np.abs(difference).mean() < 0.03


def test_dropout_reaches_the_first_queries():
    layer = built(2, dropout=0.5)
    rows = [layer(X, X, training=True)[:, :2].numpy() for _ in range(2)]
    assert np.abs(rows[0] - rows[1]).max() > 0.01


@pytest.mark.slow
def test_adapters_name_the_second_projections():
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, built(2, name="attention")(inputs, inputs))
    assert add_lora(model, 1, targets=["query"]) == ["attention/query"]
    model = keras.Model(inputs, built(2, name="attention")(inputs, inputs))
    before, named = model(X), add_lora(model, 1, targets=["global_*"])
    assert named == [f"attention/{name}" for name in PARTS[4:]]
    layer = model.layers[-1]
    layer.global_value_lora_b.assign(np.ones(layer.global_value_lora_b.shape))
    after = model(X)
    assert np.abs(after - before)[:, :2].max() > 0.01
    np.testing.assert_array_equal(after[:, 2:], before[:, 2:])


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"num_global": -1}, "`num_global` must be an integer of at least 0.*num_global=-1"),
        ({"qk_norm": "rms_norm"}, "`qk_norm` must be None.*'rms_norm'"),
        ({"score": "shared_qk"}, "`score` must be one with kernels of keys"),
        ({"pattern": AdaptiveSpan(4)}, "`pattern` must be a function of positions alone"),
        ({"pattern": LSH(2), "score": "shared_qk"}, "`score` must be one with kernels of keys"),
    ],
)
def test_invalid_arguments_raise(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        GlobalAttention(2, 4, **arguments)


def test_a_cache_is_refused():
    layer = built(2, pattern=Local(3) | Global(2, causal=True))
    with pytest.raises(ValueError, match="`cache` must be None.*index"):
        layer(X, X, cache=KVCache(T).initial(layer, B))
