"""Decoding with a cache equals one call on the whole sequence."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops
from marks import slow

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import (
    BlockLocal1D,
    BlockLocal2D,
    Causal,
    Fixed,
    Global,
    Local,
    PerHead,
    Strided,
)

B, T, S, N, H, D = 3, 7, 5, 4, 6, 11
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)

LONG = 11
LONG_X = oracles.random(B, LONG, D)
PATTERNS = {
    "local 4": Local(4),
    "strided": Strided(3),
    "fixed": Fixed(4, 2),
    "local or column": Local(2) | Strided(4, "column"),
    "overlapping": (Local(4) & Strided(3)) | Fixed(4, 2),
    "per head": PerHead([Local(2), Strided(3), Causal(), Fixed(4, 1)]),
    "per head of windows": PerHead([Local(2), Local(5), BlockLocal1D(2, 1), Local(2)]),
    "per head with first": PerHead(
        [Local(2) | Global(1, causal=True), Local(3), Global(2, causal=True), Local(1)]
    ),
    "image": BlockLocal2D((3, 4), (2, 2), (1, 1)),
}


LAYERS = {
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
        kept = layer.pattern.kept_keys.size or slots
        assert int(cache["index"]) == start and cache["key"].shape[2] == min(slots, kept)
    return np.concatenate(outputs, axis=1)


# Each layer, each way to cut a sequence and each number of slots.
@pytest.mark.parametrize(
    "name, chunks, slots",
    [
        slow("shared heads", [3, 1, 2, 1], None),
        ("value_dim", [5, 1, 1], T + 4),
        slow("additive", [T], T),
    ],
    ids=str,
)
def test_limit_cached_equals_full(name, chunks, slots):
    layer = built(**LAYERS[name], pattern="causal")
    np.testing.assert_allclose(decode(layer, X, chunks, slots), layer(X, X), atol=1e-5)


# Which keys a step reads is in tests/attention/test_cache_reading.py, for every pattern.
@pytest.mark.parametrize(
    "name, slots",
    [
        ("local 4", 3),
        ("fixed", None),
        ("overlapping", LONG + 2),
        slow("per head", LONG + 2),
        slow("per head of windows", None),
        slow("image", LONG + 2),
    ],
)
def test_limit_cached_equals_full_for_every_pattern(name, slots):
    """A prompt, then steps; and several keys at once between steps."""
    layer = built(LONG_X, pattern=PATTERNS[name])
    full = layer(LONG_X, LONG_X)
    if slots == 3:  # fewer than a window
        np.testing.assert_allclose(decode(layer, LONG_X, [1] * 3, 3), full[:, :3], atol=1e-5)
        return
    chunks = [4, *[1] * (LONG - 4)] if slots else [2, 3, 1, 5]
    np.testing.assert_allclose(decode(layer, LONG_X, chunks, slots), full, atol=1e-5)


@pytest.mark.slow
def test_a_ring_never_runs_full():
    """Nor does it matter how many keys come at once."""
    layer = built(LONG_X, pattern=PATTERNS["per head with first"])
    slots = layer.pattern.kept_keys.size
    full = layer(LONG_X, LONG_X)
    for chunks in ([LONG], [slots + 1, 1, LONG - slots - 2]):
        np.testing.assert_allclose(decode(layer, LONG_X, chunks, slots), full, atol=1e-5)


@pytest.mark.parametrize("name, whole", [("local or column", False), slow("image", True)])
def test_masks_are_cut_like_the_cache(name, whole):
    """A column of a mask is a position, wherever its key is kept."""
    layer = built(LONG_X, pattern=PATTERNS[name])
    slots = np.arange(LONG)
    real = slots % np.array([[20], [2], [5]]) != 1
    pairs = np.random.default_rng(0).random((B, N, LONG, LONG)) < 0.7
    full = layer(LONG_X, LONG_X, value_mask=real, attention_mask=pairs)
    cache, outputs, start = KVCache(LONG, whole).initial(layer, B), [], 0
    for length in (5, 1, 1, LONG - 8, 1):
        end = start + length
        piece = LONG_X[:, start:end]
        masks = {"value_mask": real, "attention_mask": pairs[:, :, start:end]}
        output, cache = layer(piece, piece, cache=cache, **masks)
        outputs.append(output)
        start = end
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full, atol=1e-5)


def test_scores_of_a_step_are_those_of_all_slots():
    layer = built(LONG_X, pattern=PATTERNS["strided"])
    full, expected = layer(LONG_X, LONG_X, return_attention_scores=True)
    for cache in (KVCache(LONG + 9).initial(layer, B), KVCache(None).initial(layer, B)):
        _, cache = layer(LONG_X[:, :-1], LONG_X[:, :-1], cache=cache)
        last = LONG_X[:, -1:]
        output, scores, _ = layer(last, last, cache=cache, return_attention_scores=True)
        np.testing.assert_array_equal(output, layer(last, last, cache=cache)[0])
        np.testing.assert_allclose(scores[..., :LONG], expected[:, :, -1:], atol=1e-6)
        assert np.all(scores[..., LONG:] == 0)


@pytest.mark.slow
def test_positions_of_a_call_are_those_of_its_queries_and_slots():
    """Queries' own as a model gives them; with keys' own, slots may stand anywhere."""
    layer = built(LONG_X, pattern=PATTERNS["local or column"])
    full = layer(LONG_X, LONG_X)
    cache = KVCache(LONG).initial(layer, B)
    shuffled = KVCache(LONG + 2, whole=True).initial(layer, B)
    order = np.random.default_rng(0).permutation(LONG)
    standing = np.append(order, [0, 0])
    for t in range(LONG):
        piece, moved = LONG_X[:, t : t + 1], LONG_X[:, order[t] : order[t] + 1]
        output, cache = layer(piece, piece, cache=cache, query_positions=np.array([t]))
        np.testing.assert_allclose(output[:, 0], full[:, t], atol=1e-5)
        positions = {"query_positions": order[t : t + 1], "key_positions": standing}
        output, shuffled = layer(moved, moved, cache=shuffled, **positions)
    np.testing.assert_allclose(output[:, 0], full[:, order[-1]], atol=1e-5)
    assert shuffled["key"].shape[2] == LONG + 2


def test_a_ring_refuses_positions_of_keys_that_are_gone():
    layer = built(LONG_X, pattern=Local(4))
    piece = LONG_X[:, :1]
    with pytest.raises(ValueError, match=r"whole=True.*shape \(11,\), a cache of the last 4 keys"):
        cache = KVCache(LONG).initial(layer, B)
        layer(piece, piece, cache=cache, query_positions=[0], key_positions=np.arange(LONG))
    with pytest.raises(ValueError, match="`value_mask`.*11"):
        layer = built(LONG_X, pattern=Strided(3))
        cache = KVCache(LONG).initial(layer, B)
        layer(piece, piece, cache=cache, value_mask=np.ones((B, 5), bool))


def test_use_causal_mask_with_a_cache():
    layer = built()
    stepped = decode(layer, X, [2, 5], T, use_causal_mask=True)
    np.testing.assert_allclose(stepped, layer(X, X, use_causal_mask=True), atol=1e-5)


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
    _, cache = layer(prompt, prompt, cache=cache, value_mask=real)
    output, _ = layer(new, new, cache=cache, value_mask=real)
    for b, n in enumerate(lengths):
        alone = np.concatenate([prompt[b : b + 1, :n], new[b : b + 1]], axis=1)
        np.testing.assert_allclose(output[b], layer(alone, alone)[0, -1:], atol=1e-5)


@pytest.mark.parametrize("name", ["additive", "shared heads"])
def test_limit_complete_cache_equals_the_context(name):
    layer = built(CONTEXT, **LAYERS[name])
    mask = np.arange(S)[None] < np.array([[5], [2], [3]])
    cache = layer.context_cache(ops.array(CONTEXT))
    output, same = layer(X, None, cache=cache, value_mask=mask)
    np.testing.assert_allclose(output, layer(X, CONTEXT, value_mask=mask), atol=1e-5)
    assert same is cache or all(np.array_equal(same[k], cache[k]) for k in cache)


def test_one_position_needs_no_axis_of_its_own():
    layer = built(X, **LAYERS["shared heads"])
    new, results = X[:, 0], []
    for x in (new, new[:, None]):
        output, cache = layer(x, x, cache=KVCache(5).initial(layer, B))
        results.append((np.reshape(output, new.shape), cache["key"]))
    oracles.check_each(*results, atol=1e-6)


def test_one_graph_serves_every_step():
    layer = built(pattern=PATTERNS["local 4"])
    traces = []

    @tf.function
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


@pytest.mark.slow
def test_a_graph_of_unknown_lengths():
    """In it a cache may grow, and neither the slots nor the new keys are counted beforehand."""
    layer = built(LONG_X, pattern=PATTERNS["image"])
    full = layer(LONG_X, LONG_X)
    slots = tf.TensorSpec((None, N, None, H))

    for length in (1, None):
        piece = tf.TensorSpec((None, length, D))

        @tf.function(input_signature=[piece, slots, slots])
        def grow(x, key, value):
            return layer(x, x, cache={"key": key, "value": value, "index": None})

        @tf.function(input_signature=[piece, slots, slots, tf.TensorSpec((), "int32")])
        def write(x, key, value, index):
            return layer(x, x, cache={"key": key, "value": value, "index": index})

        growing, fixed = (KVCache(count).initial(layer, B) for count in (None, LONG))
        for t in range(LONG):
            x = LONG_X[:, t : t + 1]
            output, growing = grow(x, growing["key"], growing["value"])
            np.testing.assert_allclose(output[:, 0], full[:, t], atol=1e-5)
            output, fixed = write(x, *(fixed[name] for name in ("key", "value", "index")))
            np.testing.assert_allclose(output[:, 0], full[:, t], atol=1e-5)
