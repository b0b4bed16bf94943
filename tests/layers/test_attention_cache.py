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
    Dilated,
    Fixed,
    Global,
    Local,
    PerHead,
    Random,
    Strided,
)

B, T, S, N, H, D = 3, 7, 5, 4, 6, 11
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)

LONG = 11
LONG_X = oracles.random(B, LONG, D)
PATTERNS = {
    "causal": Causal(),
    "local 1": Local(1),
    "local 4": Local(4),
    "two-sided": Local(3, causal=False) & Causal(),
    "block": BlockLocal1D(3, lookback=2),
    "strided local": Strided(3, "local"),
    "strided column": Strided(3, "column"),
    "strided": Strided(3),
    "fixed block": Fixed(4, 2, "block"),
    "fixed summary": Fixed(4, 2, "summary"),
    "fixed": Fixed(4, 2),
    "local and strided": Local(5) & Strided(3),
    "local or column": Local(2) | Strided(4, "column"),
    "overlapping": (Local(4) & Strided(3)) | Fixed(4, 2),
    "local or causal": Local(2) | Causal(),
    "per head": PerHead([Local(2), Strided(3), Causal(), Fixed(4, 1)]),
    "per head of windows": PerHead([Local(2), Local(5), BlockLocal1D(2, 1), Local(2)]),
    "local and first": Local(3) | Global(2, causal=True),
    "dilated": Dilated(3, 2),
    "random": Random(2, 1, 12, causal=True),
    "per head with first": PerHead(
        [Local(2) | Global(1, causal=True), Local(3), Global(2, causal=True), Local(1)]
    ),
    "image": BlockLocal2D((3, 4), (2, 2), (1, 1)),
}
SEVERAL = ["local 4", "block", "strided", "fixed", "local or column", "image"]

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
        kept = layer.pattern.kept_keys.size or slots
        assert int(cache["index"]) == start and cache["key"].shape[2] == min(slots, kept)
    return np.concatenate(outputs, axis=1)


CHUNKS, SLOTS = [[1] * T, [3, 1, 2, 1], [T]], [T, T + 4, None]


# Each pair of chunks and slots, and each layer with all chunks and all slots.
@pytest.mark.parametrize(
    "name, chunks, slots",
    [
        (name, chunks, SLOTS[(row + column) % 3])
        for row, name in enumerate(LAYERS)
        for column, chunks in enumerate(CHUNKS)
        if row != column
    ],
    ids=str,
)
def test_limit_cached_equals_full(name, chunks, slots):
    layer = built(**LAYERS[name], pattern="causal")
    np.testing.assert_allclose(decode(layer, X, chunks, slots), layer(X, X), atol=1e-5)


# One key, one less than a window, a window, one more, far more: each with several patterns.
PROMPTS = (1, 3, 4, 5, 10)


# Each pattern with one kind of cache.
@pytest.mark.parametrize(
    "name, slots",
    [
        pytest.param(name, (LONG + 2, None, 3)[row % 3], marks=[pytest.mark.slow] * (row % 2))
        for row, name in enumerate(PATTERNS)
    ],
)
def test_limit_cached_equals_full_for_every_pattern(name, slots):
    """A prompt, then steps; and several keys at once between steps."""
    layer = built(LONG_X, pattern=PATTERNS[name])
    full = layer(LONG_X, LONG_X)
    if slots == 3:  # fewer than a window
        np.testing.assert_allclose(decode(layer, LONG_X, [1] * 3, 3), full[:, :3], atol=1e-5)
        return
    number = list(PATTERNS).index(name)
    prompt = PROMPTS[number % 5]
    chunks = [prompt, *[1] * (LONG - prompt)] if slots else [2, 3, 1, 5]
    np.testing.assert_allclose(decode(layer, LONG_X, chunks, slots), full, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["local 4", "per head with first", slow("dilated")],
)
def test_a_ring_never_runs_full(name):
    """Nor does it matter how many keys come at once."""
    layer = built(LONG_X, pattern=PATTERNS[name])
    slots = layer.pattern.kept_keys.size
    full = layer(LONG_X, LONG_X)
    for chunks in ([1] * LONG, [LONG], [slots + 1, 1, LONG - slots - 2]):
        np.testing.assert_allclose(decode(layer, LONG_X, chunks, slots), full, atol=1e-5)


OTHERS = [
    {"num_key_value_heads": 2, "value_dim": 8},
    {"score": "additive"},
    {"dtype": "mixed_bfloat16"},
]


@pytest.mark.parametrize(
    "name, slots, arguments",
    [
        pytest.param(
            *(name, (LONG, None)[row % 2], OTHERS[row % 3]), marks=[pytest.mark.slow] * (row > 2)
        )
        for row, name in enumerate(SEVERAL)
    ],
    ids=str,
)
def test_other_layers_with_other_patterns(name, slots, arguments):
    layer = built(LONG_X, pattern=PATTERNS[name], **arguments)
    x = ops.cast(LONG_X, layer.compute_dtype)
    stepped = decode(layer, x, [2] + [1] * (LONG - 2), slots)
    full, steps = (oracles.numpy_of(y) for y in (layer(x, x), ops.convert_to_tensor(stepped)))
    atol = 0.05 * np.abs(full).max() if "dtype" in arguments else 1e-5
    np.testing.assert_allclose(steps, full, atol=atol)


@pytest.mark.parametrize(
    "name, whole", [("block", False), ("fixed", False), ("local or column", False), ("image", True)]
)
def test_masks_are_cut_like_the_cache(name, whole):
    """A column of a mask is a position, wherever its key is kept."""
    layer = built(LONG_X, pattern=PATTERNS[name])
    slots = np.arange(LONG)
    real = slots % np.array([[20], [2], [5]]) != 1
    pairs = np.random.default_rng(0).random((B, N, LONG, LONG)) < 0.7
    full = layer(LONG_X, LONG_X, value_mask=real, attention_mask=pairs)
    cache, outputs, start = KVCache(LONG, whole).initial(layer, B), [], 0
    for length in (5, *[1] * (LONG - 5)):
        end = start + length
        piece = LONG_X[:, start:end]
        masks = {"value_mask": real, "attention_mask": pairs[:, :, start:end]}
        output, cache = layer(piece, piece, cache=cache, **masks)
        outputs.append(output)
        start = end
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full, atol=1e-5)


@pytest.mark.parametrize("name", ["strided", "image"])
def test_scores_of_a_step_are_those_of_all_slots(name):
    layer = built(LONG_X, pattern=PATTERNS[name])
    full, expected = layer(LONG_X, LONG_X, return_attention_scores=True)
    for cache in (KVCache(LONG + 9).initial(layer, B), KVCache(None).initial(layer, B)):
        _, cache = layer(LONG_X[:, :-1], LONG_X[:, :-1], cache=cache)
        last = LONG_X[:, -1:]
        output, scores, _ = layer(last, last, cache=cache, return_attention_scores=True)
        np.testing.assert_array_equal(output, layer(last, last, cache=cache)[0])
        np.testing.assert_allclose(scores[..., :LONG], expected[:, :, -1:], atol=1e-6)
        assert np.all(scores[..., LONG:] == 0)


@pytest.mark.parametrize("name", ["block", "local or column"])
def test_positions_given_to_a_call(name):
    """Queries' own as a model gives them; with keys' own, slots may stand anywhere."""
    layer = built(LONG_X, pattern=PATTERNS[name])
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
    _, cache = layer(prompt, prompt, cache=cache, value_mask=real)
    output, _ = layer(new, new, cache=cache, value_mask=real)
    for b, n in enumerate(lengths):
        alone = np.concatenate([prompt[b : b + 1, :n], new[b : b + 1]], axis=1)
        np.testing.assert_allclose(output[b], layer(alone, alone)[0, -1:], atol=1e-5)


@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
def test_limit_complete_cache_equals_the_context(arguments):
    layer = built(CONTEXT, **arguments)
    mask = np.arange(S)[None] < np.array([[5], [2], [3]])
    cache = layer.context_cache(ops.array(CONTEXT))
    output, same = layer(X, None, cache=cache, value_mask=mask)
    np.testing.assert_allclose(output, layer(X, CONTEXT, value_mask=mask), atol=1e-5)
    assert same is cache or all(np.array_equal(same[k], cache[k]) for k in cache)


@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
def test_one_position_needs_no_axis_of_its_own(arguments):
    layer = built(X, **arguments)
    new, results = X[:, 0], []
    for x in (new, new[:, None]):
        output, cache = layer(x, x, cache=KVCache(5).initial(layer, B))
        results.append((np.reshape(output, new.shape), cache["key"]))
    oracles.check_each(*results, atol=1e-6)


def test_complete_cache_of_a_context_with_keys_of_its_own():
    keys = oracles.random(B, S, 13)
    layer = MultiHeadAttention(N, H)
    layer.build(X.shape, CONTEXT.shape, keys.shape)
    cache = layer.context_cache(ops.array(CONTEXT), ops.array(keys))
    output, _ = layer(X, None, cache=cache)
    np.testing.assert_allclose(output, layer(X, CONTEXT, keys), atol=1e-5)


@pytest.mark.parametrize(
    "name, jit_compile",
    [
        ("local 4", False),
        slow("local or column", False),
        slow("fixed", True),
    ],
)
def test_one_graph_serves_every_step(name, jit_compile):
    layer = built(pattern=PATTERNS[name])
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local 4", "image"])
def test_a_graph_of_unknown_lengths(name):
    """In it a cache may grow, and neither the slots nor the new keys are counted beforehand."""
    layer = built(LONG_X, pattern=PATTERNS[name])
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local 4", "fixed", "image"])
def test_no_op_that_only_xla_runs(name):
    layer = built(LONG_X, pattern=PATTERNS[name])
    for count, length in ((LONG, 1), (LONG, 2), (None, 1)):
        cache = KVCache(count).initial(layer, B)
        cache = {key: x for key, x in cache.items() if x is not None}
        step = tf.function(lambda x, cache: layer(x, x, cache={"index": None, **cache}))
        graph = step.get_concrete_function(tf.TensorSpec((B, length, D)), cache).graph
        assert not [op.type for op in graph.get_operations() if "Xla" in op.type]
