"""Packed rows: each document has the outputs and gradients that it has alone, under every plan."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from gradients import output_and_gradients
from index_sets import CASES, NUM_HEADS, SMALL_TILES, W
from keras import ops
from marks import slow_but

from keras_attn import export
from keras_attn.attention.inputs import TileSizes
from keras_attn.layers import FeedForward, MultiHeadAttention, PositionedBlock, TransformerBlock
from keras_attn.memory import KVCache
from keras_attn.patterns import LSH, AdaptiveSpan, Fixed, Local, Pattern
from keras_attn.positions import Learned
from keras_attn.scores import ALiBi, DotProduct, LearnedRelative, Relative, T5Bias

H, D = 4, 6
# Documents shorter and longer than the windows and blocks, in two rows of 37 with padding.
LENGTHS = [(11, 3, 17, 1), (2 * W + 1, 16)]
T = 37
ROWS = len(LENGTHS)


def ids_of(lengths):
    """Segment ids in the order of a row; the second row begins with padding."""
    ids = [number for number, length in enumerate(lengths, start=5) for _ in range(length)]
    fill = [0] * (T - len(ids))
    return ids + fill if lengths == LENGTHS[0] else fill + ids


IDS = np.array([ids_of(lengths) for lengths in LENGTHS], "int32")
X = oracles.random(ROWS, T, D)
SPANS = [
    (row, np.flatnonzero(IDS[row] == number))
    for row in range(ROWS)
    for number in np.unique(IDS[row][IDS[row] > 0])
]

# Patterns and scores that tests/layers/test_combinations.py does not pack.
PLANS = {
    "nested": {"pattern": CASES["nested"][0]},
    "span": {"pattern": AdaptiveSpan(9, ramp=4, initial_span=0.5)},
    "lsh": {
        "pattern": LSH(4, num_rounds=2, num_buckets=4, causal=False, across_buckets=True),
        "score": "shared_qk",
    },
    "relative": {"pattern": Local(W), "score": Relative()},
    "learned relative": {"pattern": "causal", "score": LearnedRelative(9)},
    "biases": {"pattern": CASES["strided"][0], "score": DotProduct() + ALiBi() + T5Bias(8, 12)},
}


def built(implementation="blockwise", **arguments):
    layer = MultiHeadAttention(NUM_HEADS, H, implementation=implementation, **arguments)
    layer.tile_sizes = SMALL_TILES
    layer.build((None, None, D), (None, None, D))
    weights = [oracles.random(*w.shape, seed=n, scale=0.4) for n, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    return layer


def alone(layer):
    """The same with each document in a row of its own, put back where it is in the packed rows."""
    longest = max(len(places) for _, places in SPANS)
    rows = np.zeros((len(SPANS), longest, D), "float32")
    real = np.arange(longest) < np.array([[len(places)] for _, places in SPANS])
    for n, (row, places) in enumerate(SPANS):
        rows[n, : len(places)] = X[row, places]
    row_arrays = output_and_gradients(layer, rows, upstream=real[..., None], value_mask=real)
    token_arrays = np.zeros((2, ROWS, T, D))
    for n, (row, places) in enumerate(SPANS):
        for array, put in zip(row_arrays, token_arrays):
            put[row, places] = array[n, : len(places)]
    return [*token_arrays, *row_arrays[2:]]


@pytest.mark.parametrize("name", slow_but(["nested"], PLANS))
def test_packed_documents_equal_each_alone_and_do_not_touch_each_other(name):
    layer, real = built(**PLANS[name]), IDS > 0
    results = output_and_gradients(layer, X, upstream=real[..., None], segment_ids=IDS)
    expected = alone(built("dense", **PLANS[name]))
    expected[0][~real] = oracles.numpy_of(layer.output_bias)
    oracles.check_each(results, expected, atol=2e-5, scaled=True)
    assert all(np.abs(gradient).max() > 1e-3 for gradient in expected[1:3])
    (row, places), changed = SPANS[2], X.copy()
    changed[row, places] += 1
    before, after = (np.asarray(layer(x, x, segment_ids=IDS)) for x in (X, changed))
    differs = (after != before).any(axis=-1)
    assert differs[row, places].any()
    differs[row, places] = False
    assert not differs.any()


@pytest.mark.slow
def test_the_matrix_of_scores_gives_the_same():
    layers = [built(how, **PLANS["lsh"]) for how in ("blockwise", "dense")]
    call = {"segment_ids": IDS, "value_mask": np.arange(T)[None] % 7 != 3}
    results = (output_and_gradients(layer, X, **call) for layer in layers)
    oracles.check_each(*results, atol=2e-5, scaled=True)
    output, scores = layers[0](X, X, **call, return_attention_scores=True)
    np.testing.assert_array_equal(output, layers[0](X, X, **call))
    same = (IDS[:, :, None] == IDS[:, None, :]) & (IDS[:, :, None] > 0)
    assert np.all(np.asarray(scores)[~np.broadcast_to(same[:, None], scores.shape)] == 0)
    np.testing.assert_allclose(scores, layers[1](X, X, **call, return_attention_scores=True)[1])


@pytest.mark.slow
def test_a_document_longer_than_every_window_is_read_whole():
    length = 2100  # windows reach 1,024 keys, and 2,048 are a row that windows might be enough for
    x, ids = oracles.random(1, length, 3), np.ones((1, length), "int32")
    outputs = []
    for implementation in ("blockwise", "dense"):
        layer = MultiHeadAttention(1, 2, pattern="causal", implementation=implementation)
        layer.build(x.shape, x.shape)
        layer.set_weights([oracles.random(*w.shape, seed=n) for n, w in enumerate(layer.weights)])
        outputs.append(layer(x, x, segment_ids=ids))
    np.testing.assert_allclose(*outputs, atol=1e-5)


@pytest.mark.slow
def test_a_pattern_of_ones_own_gets_positions_in_the_document():
    class Firsts(Pattern):
        causal = True

        def mask_mod(self, i, j):
            return (j < 2) & (j <= i)

        def attend(self, inputs, log_weight=False):
            raise AssertionError("its own plan does not know packed rows")

    output = built(pattern=Firsts())(X, X, segment_ids=IDS)
    layer = built("dense", pattern=Firsts())
    for row, places in SPANS:
        document = X[row : row + 1, places]
        np.testing.assert_allclose(
            output[row][places[0] : places[-1] + 1], layer(document, document)[0], atol=1e-5
        )


@pytest.mark.slow
def test_a_cache_is_extended_by_parts_of_a_packed_row():
    layer = built(pattern="causal", position="rotary", num_key_value_heads=1)
    whole = layer(X, X, segment_ids=IDS)
    cache, outputs = KVCache(T + 2).initial(layer, ROWS), []
    ids = np.pad(IDS, [(0, 0), (0, 2)])
    for start, end in ((0, 9), (9, 10), (10, 22), (22, T)):
        piece = ops.array(X[:, start:end])
        output, cache = layer(piece, piece, cache=cache, segment_ids=ids)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=2e-5)


def test_queries_may_be_the_last_tokens_of_the_row():
    layer = built(pattern=Fixed(5, 2), position="rotary")
    whole = layer(X, X, segment_ids=IDS)
    last = layer(X[:, -9:], X, segment_ids=IDS)
    np.testing.assert_allclose(last, whole[:, -9:], atol=2e-5)


def test_a_block_passes_segments_on_and_counts_positions_in_documents():
    block = TransformerBlock(MultiHeadAttention(2, 4, pattern="causal"), FeedForward(7))
    block = PositionedBlock(block, Learned(17))
    block.build(X.shape)
    oracles.scramble(block)
    output = block(X, segment_ids=IDS)
    for row, places in SPANS:
        document = X[row : row + 1, places]
        np.testing.assert_allclose(
            output[row][places[0] : places[-1] + 1], block(document)[0], atol=1e-5
        )


@pytest.mark.slow
def test_one_graph_serves_every_length_with_ops_that_the_server_runs(tmp_path):
    spec = tf.TensorSpec([None, None, D], tf.float32), tf.TensorSpec([None, None], tf.int32)
    served = tf.Module()
    served.layer = layer = built(**PLANS["lsh"])
    layer.tile_sizes = TileSizes()

    @tf.function(input_signature=spec, autograph=False)
    def attend(x, segment_ids):
        return layer(x, x, segment_ids=segment_ids)

    served.attend = attend
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(served, str(tmp_path), options=options)
    assert export.unservable_ops(str(tmp_path)) == []
    loaded = tf.saved_model.load(str(tmp_path))
    for length in (1, T):
        x, ids = X[:, :length], IDS[:, :length]
        expected = layer(x, x, segment_ids=ids)
        np.testing.assert_allclose(loaded.attend(x, ids), expected, atol=1e-5)


@pytest.fixture(scope="module")
def plain_layer():
    return built()


CROSS, SLOTS = np.ones((ROWS, 3, D), "float32"), np.ones((ROWS, NUM_HEADS, 5, H), "float32")


@pytest.mark.parametrize(
    "inputs, call, message",
    [
        ((X, X), {"segment_ids": IDS[:, 1:]}, r"`segment_ids`.*\(2, 37\).*\(2, 36\)"),
        ((X, X), {"segment_ids": IDS[:1]}, r"`segment_ids`.*\(2, 37\).*\(1, 37\)"),
        ((X, X), {"segment_ids": IDS[0]}, r"`segment_ids`.*\(2, 37\).*\(37,\)"),
        ((X, X), {"segment_ids": IDS - 1}, "`segment_ids` must be at least 0. .* from -1"),
        ((X, X), {"segment_ids": IDS + 0.5}, "`segment_ids` must be integers.*float"),
        ((X, CROSS), {"segment_ids": IDS[:, :3]}, "key at the position.*37 queries, 3 keys"),
        (
            (X, X),
            {"segment_ids": IDS, "cache": dict.fromkeys(("key", "value"), SLOTS)},
            r"an id for each slot.*shape \(2, 5\).*whole=True.*\(2, 37\)",
        ),
        (
            (X, X),
            {"segment_ids": IDS, "query_positions": np.arange(T)},
            "leave out `query_positions`",
        ),
    ],
)
def test_errors(plain_layer, inputs, call, message):
    with pytest.raises(ValueError, match=message):
        plain_layer(*inputs, **call)


def test_rounds_that_look_back_at_each_other_are_refused():
    pattern = LSH(4, num_buckets=4, across_buckets=True, wrap=True)
    with pytest.raises(ValueError, match="`wrap`.*two documents"):
        built(pattern=pattern, score="shared_qk")(X, X, segment_ids=IDS)
