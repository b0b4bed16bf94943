import math

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn import patterns
from keras_attn.attention.inputs import AttentionInputs
from keras_attn.patterns import (
    BlockLocal1D,
    Causal,
    Dense,
    Dilated,
    Fixed,
    Global,
    Local,
    Pattern,
    PerHead,
    Prefix,
    Random,
    Strided,
)
from keras_attn.patterns.pattern import KeptKeys

# Block 3 draws block 1, block 4 draws 2, and so on.
DRAWN = [(), (), (), (1,), (2,), (3,), (1,)]
TRUTH = {
    Dense(): lambda i, j: True,
    Causal(): lambda i, j: j <= i,
    Local(3): lambda i, j: 0 <= i - j < 3,
    Local(3, causal=False): lambda i, j: abs(i - j) < 3,
    BlockLocal1D(4, 2): lambda i, j: j <= i and j >= 4 * math.floor(i / 4) - 2,
    Strided(3, "local"): lambda i, j: j <= i and i - j < 3,
    Strided(3, "column"): lambda i, j: j <= i and (i - j) % 3 == 0,
    Strided(3): lambda i, j: j <= i and (i - j < 3 or (i - j) % 3 == 0),
    Dilated(3, 2): lambda i, j: 0 <= i - j < 6 and (i - j) % 2 == 0,
    Dilated(3, 2, causal=False): lambda i, j: abs(i - j) < 6 and (i - j) % 2 == 0,
    Global(2): lambda i, j: i < 2 or j < 2,
    Global(2, causal=True): lambda i, j: j < 2 and j <= i,
    Prefix(3): lambda i, j: j < 3,
    Random(2, 1, 13, causal=True): lambda i, j: 0 <= i < 14 and math.floor(j / 2) in DRAWN[i // 2],
    Fixed(4, 1, "block"): lambda i, j: j <= i and math.floor(j / 4) == math.floor(i / 4),
    Fixed(4, 1, "summary"): lambda i, j: j <= i and j % 4 >= 3,
    Fixed(4, 2): lambda i, j: j <= i and (math.floor(j / 4) == math.floor(i / 4) or j % 4 >= 2),
    Local(4, causal=False) & Strided(2, "column"): lambda i, j: 0 <= i - j < 4 and (i - j) % 2 == 0,
    Local(2, causal=False) | BlockLocal1D(3, 0): lambda i, j: (
        abs(i - j) < 2 or j <= i and j >= 3 * math.floor(i / 3)
    ),
    (Local(2) | Fixed(4, 1, "summary")) & Local(9): lambda i, j: (
        0 <= i - j < 9 and (i - j < 2 or j % 4 == 3)
    ),
}
POSITIONS = st.lists(st.integers(-3, 12), min_size=1, max_size=6)


@pytest.mark.parametrize("pattern", TRUTH, ids=repr)
@settings(deadline=None, max_examples=3)
@given(POSITIONS, POSITIONS)
def test_oracle(pattern, queries, keys):
    allowed = np.asarray(pattern.allowed(np.array(queries), np.array(keys)))
    assert allowed.shape == (len(queries), len(keys)) and allowed.dtype == bool
    for t, s in np.ndindex(allowed.shape):
        assert allowed[t, s] == TRUTH[pattern](queries[t], keys[s])


@pytest.mark.parametrize("pattern", TRUTH, ids=repr)
def test_positions_of_each_row(pattern):
    queries, keys = np.array([[0, 4], [2, 1], [5, 5]]), np.array([[0, 1, 2], [3, 0, 1], [9, 5, 6]])
    allowed = np.broadcast_to(pattern.allowed(queries, keys), (3, 2, 3))
    for b, t, s in np.ndindex(3, 2, 3):
        assert allowed[b, t, s] == TRUTH[pattern](queries[b, t], keys[b, s])
    shared = np.broadcast_to(pattern.allowed(queries, keys[0]), (3, 2, 3))
    for b, t, s in np.ndindex(3, 2, 3):
        assert shared[b, t, s] == TRUTH[pattern](queries[b, t], keys[0, s])


def test_each_head_has_its_own():
    parts = [Local(2), Causal(), Fixed(3, 1, "summary")]
    row, rows = np.arange(5), np.array([[0, 4], [2, 1]])
    pattern = PerHead(parts)
    allowed = np.asarray(pattern.allowed(row, row))
    assert allowed.shape == (3, 5, 5)
    in_rows = np.asarray(pattern.allowed(rows, row))
    assert in_rows.shape == (2, 3, 2, 5)
    for n, part in enumerate(parts):
        np.testing.assert_array_equal(allowed[n], part.allowed(row, row))
        np.testing.assert_array_equal(in_rows[:, n], part.allowed(rows, row))


@pytest.mark.parametrize("pattern", TRUTH, ids=repr)
def test_a_pattern_says_whether_it_is_causal(pattern):
    looks_ahead = any(TRUTH[pattern](i, j) for i in range(20) for j in range(i + 1, 20))
    assert pattern.causal is not looks_ahead


def test_a_pattern_per_head_combines_head_by_head():
    heads = PerHead([Local(2), Dense()])
    assert heads & Causal() == PerHead([Local(2) & Causal(), Dense() & Causal()])
    assert heads | Causal() == PerHead([Local(2) | Causal(), Dense() | Causal()])


def test_heads_are_causal_if_all_are():
    assert PerHead([Local(2), Causal()]).causal
    assert not PerHead([Local(2), Dense()]).causal


def test_the_mask_has_an_axis_for_heads():
    rows, row = np.array([[0, 1], [1, 2], [2, 3]]), np.arange(4)

    def mask_shape(pattern, query_positions, key_positions):
        heads = np.zeros((3, 3, 4, 2))
        inputs = AttentionInputs(heads, heads, heads, query_positions, key_positions, None)
        mask, bias = pattern.dense_mask_and_bias(inputs)
        assert bias is None
        return None if mask is None else mask.shape

    assert mask_shape(Causal(), row, row) == (1, 1, 4, 4)
    assert mask_shape(Causal(), rows, row) == (3, 1, 2, 4)
    assert mask_shape(Causal(), rows, rows) == (3, 1, 2, 2)
    assert mask_shape(Dense(), rows, row) is None
    heads = PerHead([Local(2), Causal(), Fixed(3, 1, "summary")])
    assert mask_shape(heads, row, row) == (1, 3, 4, 4)
    assert mask_shape(heads, rows, row) == (3, 3, 2, 4)


@pytest.mark.parametrize("pattern", [*TRUTH, PerHead([Local(2), Dense() & Causal()])], ids=repr)
def test_save_config(pattern):
    config = keras.saving.serialize_keras_object(pattern)
    again = keras.saving.deserialize_keras_object(config)
    assert again == pattern and hash(again) == hash(pattern) and repr(again) == repr(pattern)
    assert patterns.get(config) == pattern
    assert sum(other == pattern for other in TRUTH) <= 1


class OfContent(Pattern):
    is_of_positions = False


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Local(0), "`window`.*window=0"),
        (lambda: BlockLocal1D(0, 1), "`block_length`.*block_length=0"),
        (lambda: BlockLocal1D(4, -1), "`lookback`.*at least 0.*lookback=-1"),
        (lambda: Dilated(3, 0), "`dilation`.*dilation=0"),
        (lambda: Global(-1), "`count`.*at least 0.*count=-1"),
        (lambda: Prefix(2.5), "`length`.*length=2.5"),
        (lambda: Random(0, 3, 20), "`block_length`.*block_length=0"),
        (lambda: Random(4, 0, 20), "`num_blocks`.*num_blocks=0"),
        (lambda: Random(4, 3, 20, seed=-1), "`seed`.*at least 0.*seed=-1"),
        (lambda: Strided(0), "`stride`.*stride=0"),
        (lambda: Strided(3, "row"), "`factor`.*'local', 'column', 'both'.*factor='row'"),
        (lambda: Fixed(0, 1), "`stride`.*stride=0"),
        (lambda: Fixed(4, 0), "`summary`.*summary=0"),
        (lambda: Fixed(4, 5), "`summary`.*`stride`.*summary=5, stride=4"),
        (lambda: Fixed(4, 2, "column"), "`factor`.*'block', 'summary', 'both'.*factor='column'"),
        (lambda: PerHead([Causal(), OfContent()]), r"`patterns\[1\]`.*OfContent\(\)"),
        (lambda: PerHead([Causal(), PerHead([Causal()])]), r"`patterns\[1\]`.*PerHead"),
        (lambda: PerHead([]), r"`patterns`.*patterns=\[\]"),
        (lambda: PerHead(Causal()), r"`patterns` must be a list.*patterns=Causal\(\)"),
        (lambda: PerHead([Causal(), "local"]), r"Local\(window=...\)`.*patterns\[1\]='local'"),
        (lambda: Causal() & OfContent(), "`second`.*OfContent"),
        (lambda: PerHead([Causal()]) & PerHead([Causal()]), r"`PerHead\(\[p & q.*second=PerHead"),
        (lambda: PerHead([Causal()]) | PerHead([Causal()]), r"`PerHead\(\[p & q.*second=PerHead"),
        (lambda: Causal() & "local", "Unknown pattern.*second='local'"),
        (lambda: Causal() | Local, "`second` must be an object.*second=<class"),
        (lambda: OfContent() | Causal(), "`first`.*OfContent"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_pattern_without_mask_mod_raises():
    with pytest.raises(TypeError, match="OfContent must define `mask_mod"):
        OfContent().allowed(np.arange(2), np.arange(2))


def test_a_rule_of_other_arguments_is_refused_when_its_class_is_made():
    with pytest.raises(TypeError, match=r"OfHeads.mask_mod` must be `mask_mod\(self, i, j\)`"):

        class OfHeads(Pattern):
            def mask_mod(self, batch, head, i, j):
                return i >= j


def test_a_pattern_of_ones_own_is_a_function_of_positions():
    from keras_attn.layers import MultiHeadAttention

    @keras.saving.register_keras_serializable("test")
    class Even(Pattern):
        def mask_mod(self, i, j):
            return (i + j) % 2 == 0

    layer = MultiHeadAttention(2, 3, pattern=Even())
    x = np.random.default_rng(0).random((1, 4, 5))
    _, weights = layer(x, x, return_attention_scores=True)
    expected = [[(t + s) % 2 == 0 for s in range(4)] for t in range(4)]
    np.testing.assert_array_equal(np.asarray(weights)[0, 0] > 0, expected)
    assert MultiHeadAttention.from_config(layer.get_config()).pattern == Even()


@pytest.mark.parametrize("base", [Local, Strided, PerHead, Causal], ids=lambda x: x.__name__)
def test_a_concrete_pattern_has_no_subclasses(base):
    message = f"subclass of `Pattern` itself, or a combination such as `{base.__name__}.*&"
    with pytest.raises(TypeError, match=message):
        type("Narrow", (base,), {})


def test_what_mixins_and_bases_without_a_rule_define_is_inherited():
    class Past:
        causal = True

    class Windowed(Pattern):
        kept_keys = KeptKeys(7)

    class Own(Past, Windowed):
        def mask_mod(self, i, j):
            return j <= i

    assert Own().causal and Own().kept_keys.size == 7
