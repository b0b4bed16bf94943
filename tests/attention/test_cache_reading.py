"""What a step reads: no more keys than the pattern needs, each once."""

import numpy as np
import oracles
import pytest

from keras_attn.attention.cache import read_cache
from keras_attn.patterns import (
    BlockLocal1D,
    BlockLocal2D,
    Causal,
    Dilated,
    Fixed,
    Global,
    Local,
    PerHead,
    Prefix,
    Random,
    Strided,
)

M = 60
IMAGE = BlockLocal2D((6, 10), (2, 3), (1, 2))
# Pattern, and how many keys a step reads of a cache that keeps all.
READ = [
    (Local(5), 5),
    (Local(5, causal=False), 9),
    (BlockLocal1D(4, lookback=3), 7),
    (Strided(8, "local"), 8),
    (Strided(8, "column"), 8),
    (Strided(8), 8 + 8),
    (Fixed(10, 2, "block"), 10),
    (Fixed(10, 2, "summary"), 6 * 2),
    (Fixed(10, 2), 10 + 6 * 2),
    (Local(5) & Strided(8), 5),
    (Causal() & Fixed(10, 2, "summary"), 12),
    (Local(5) | Strided(8, "column"), 5 + 8),
    ((Local(7) & Strided(3)) | Fixed(10, 2), 7 + 10 + 12),
    (Dilated(3, 4), 3),
    (Dilated(3, 4, causal=False), 5),
    (Prefix(4), 4),
    (Random(4, 2, M), 8),
    (Local(5) | Global(3, causal=True), 5 + 3),
    # A row above, and two of the block with what is left of it.
    (IMAGE, 7 + 2 * 5),
    (IMAGE | Local(9), 7 + 2 * 5 + 9),
]
ALL = [Causal(), Causal() | Local(3), PerHead([Local(3), Causal()]), Local(M), Strided(1)]


@pytest.mark.parametrize("pattern, count", READ, ids=repr)
def test_candidates_are_all_that_is_allowed_each_once(pattern, count):
    for num_keys in (1, 13):
        allowed = np.asarray(pattern.allowed(np.arange(num_keys), np.arange(num_keys)))
        for position in range(0, num_keys, 3):
            positions = np.asarray(pattern.kept_keys.positions(np.int32(position), num_keys))
            assert positions.dtype == "int32" and len(positions) <= count
            positions = positions[(positions >= 0) & (positions < num_keys)]
            assert len(set(positions)) == len(positions)
            assert set(np.flatnonzero(allowed[position])) <= set(positions)
    assert len(positions) <= len(np.asarray(pattern.kept_keys.positions(np.int32(0), M))) == count


# Each pattern with one of both kinds of cache.
@pytest.mark.parametrize(
    "pattern, count, grows",
    [
        (pattern, count, bool(number % 2))
        for number, (pattern, count) in enumerate([*READ, *((pattern, M) for pattern in ALL)])
    ],
    ids=repr,
)
def test_a_step_reads_the_candidates_and_no_more(pattern, count, grows):
    old, new = oracles.random(1, 2, M, 3), oracles.random(1, 2, 1, 3, seed=1)
    filled = M - 1
    old = old[:, :, :filled] if grows else old
    cache = {"key": old, "value": -old, "index": None if grows else np.int32(filled)}
    cache, read = read_cache(cache, new, -new, pattern)
    assert read.key.shape == read.value.shape == (1, 2, count, 3)
    np.testing.assert_array_equal(read.key, -np.asarray(read.value))
    assert cache["index"] is None or int(cache["index"]) == M
    if count == M:
        return
    positions, present = np.asarray(read.positions), np.asarray(read.slot_mask)
    whole = np.asarray(cache["key"])
    np.testing.assert_array_equal(
        np.asarray(read.key)[:, :, present], whole[:, :, positions[present]]
    )
    allowed = np.asarray(pattern.allowed(np.array([M - 1]), np.arange(M)))[0]
    assert set(np.flatnonzero(allowed)) <= set(positions[present])


@pytest.mark.parametrize("index", [0, 5, 23])
def test_a_ring_is_read_before_new_keys_overwrite_it(index):
    """Its first new query still attends to a key that the last new key overwrites."""
    keys = oracles.random(1, 2, 40, 3)
    slots = np.zeros((1, 2, 5, 3), "float32")
    for p in range(max(0, index - 5), index):
        slots[:, :, p % 5] = keys[:, :, p]
    cache = {"key": slots, "value": -slots, "index": np.int32(index)}
    for length in (1, 2, 5, 8):
        new = keys[:, :, index : index + length]
        _, read = read_cache(cache, new, -new, Local(5))
        assert read.key.shape[2] == (5 if length == 1 else 5 + length)
        positions, present = np.asarray(read.positions), np.asarray(read.slot_mask)
        needed = range(max(0, index + (length == 1) - 5), index + length)
        assert sorted(positions[present]) == list(needed)
        np.testing.assert_array_equal(
            np.asarray(read.key)[:, :, present], keys[:, :, positions[present]]
        )


@pytest.mark.parametrize("index", [None, 4])
def test_several_new_keys_and_given_slots_read_all(index):
    old = oracles.random(1, 2, 30, 3)
    cache = {"key": old, "value": old, "index": index}
    whole = 30 if index else 32
    for pattern in (Strided(8), Fixed(10, 2), Local(5)):
        _, read = read_cache(cache, old[:, :, :2], old[:, :, :2], pattern)
        assert read.key.shape[2] == whole
    slots = np.arange(30 if index else 31)
    _, read = read_cache(cache, old[:, :, :1], old[:, :, :1], Strided(8), (None, slots))
    assert read.key.shape[2] == len(slots)
    rows = np.zeros((1, 1), int)
    _, read = read_cache(cache, old[:, :, :1], old[:, :, :1], Strided(8), (rows, None))
    assert read.key.shape[2] == len(slots)
