"""Linear attention: its plan equals the matrix of weights, and its cache of sums the whole pass."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from gradients import output_and_gradients
from marks import slow

from keras_attn.attention.inputs import TileSizes
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import Causal, Dense, Local
from keras_attn.scores import FAVOR, DotProduct, Kernel

B, T, S, N, H, HV, D = 3, 13, 17, 2, 3, 5, 7
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D, seed=1)
# Padding at the end, in between, and a row of nothing else.
REAL = np.stack([np.arange(S) < S, np.arange(S) % 5 < 3, np.arange(S) < 0])
SCORES = {"kernel": lambda: Kernel(), "favor": lambda: FAVOR(11, seed=0)}
CHUNKS = TileSizes(linear_chunk=4)


def built(implementation="auto", score="kernel", pattern="causal", **arguments):
    arguments = {"key_dim": H, "value_dim": HV, **arguments}
    layer = MultiHeadAttention(
        N, score=SCORES[score](), pattern=pattern, implementation=implementation, **arguments
    )
    layer.tile_sizes = CHUNKS
    layer.build(X.shape, X.shape)
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(oracles.random(*weight.shape, seed=i))
    return layer


def check_plan(*inputs, atol=2e-5, call=None, **arguments):
    """The plan gives the outputs and the gradients of the matrix of weights."""
    call = call or {}
    pairs = (
        output_and_gradients(built(way, **arguments), *inputs, **call)
        for way in ("blockwise", "dense")
    )
    oracles.check_each(*pairs, atol=atol, scaled=True)


def test_the_plan_equals_the_matrix_with_padding():
    check_plan(X, score="favor", pattern="dense", call={"value_mask": REAL[:, :T]})


def test_keys_before_the_first_query():
    check_plan(X, CONTEXT, call={"value_mask": REAL})


def test_queries_before_the_first_key():
    """The first have no key, so nothing but the output bias."""
    check_plan(CONTEXT, X, call={"value_mask": REAL[:, S - T :]})


@pytest.mark.slow
def test_mixed_bfloat16():
    check_plan(X, dtype="mixed_bfloat16", atol=4e-2)


@pytest.mark.slow
def test_later_inputs_do_not_change_a_bit_of_earlier_outputs():
    """Neither a sum that is subtracted again nor a factor of all keys would leave them equal."""
    layer = built("blockwise", "favor")
    before = oracles.numpy_of(layer(X, X))
    for first in (4, 6):  # at the end of a chunk and inside
        changed = np.concatenate([X[:, :first], 30 * X[:, first:]], axis=1)
        after = oracles.numpy_of(layer(changed, changed))
        np.testing.assert_array_equal(after[:, :first], before[:, :first])
        assert np.any(after[:, first:] != before[:, first:])


@pytest.mark.slow
def test_dropout_in_training_takes_weights():
    layer = built("blockwise", dropout=0.5)
    first, second = (layer(X, X, training=True) for _ in range(2))
    assert np.any(np.asarray(first) != second)
    np.testing.assert_array_equal(layer(X, X), built("blockwise")(X, X))


@pytest.mark.slow
def test_a_compiled_function_of_any_length():
    layer = built("blockwise")
    call = tf.function(lambda x: layer(x, x), [tf.TensorSpec((None, None, D))])
    for length in (1, 4, T):
        np.testing.assert_allclose(
            call(X[:, :length]), layer(X[:, :length], X[:, :length]), atol=1e-5
        )


def decode(layer, chunks, max_length=50, **call):
    cache, outputs, start = KVCache(max_length).initial(layer, B), [], 0
    sizes = {name: x.shape for name, x in cache.items()}
    for length in chunks:
        piece = X[:, start : start + length]
        output, cache = layer(piece, piece, cache=cache, **call)
        outputs.append(output)
        start += length
    assert {name: x.shape for name, x in cache.items()} == sizes
    assert int(cache["index"]) == start
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize(
    "arguments, chunks",
    [
        slow({"score": "favor"}, [6, 1, 1, 4, 1]),
        ({"key_dim": 4, "position": "rotary", "num_key_value_heads": 1}, [T - 1, 1]),
    ],
    ids=["favor", "shared"],
)
def test_decoding_by_sums_equals_the_whole_pass(arguments, chunks):
    layer = built(**arguments)
    np.testing.assert_allclose(decode(layer, chunks), layer(X, X), atol=1e-5)


def test_a_cache_of_sums_has_the_size_of_the_features():
    layer = built()
    for max_length in (1, 10**6, None):
        cache = KVCache(max_length).initial(layer, B)
        assert cache["sums"].shape == (B, N, H, HV + 1) and cache["sums"].dtype == "float32"
    assert KVCache(9, whole=True).initial(layer, B)["key"].shape == (B, N, 9, H)
    assert "key" in KVCache(9).initial(built(pattern=Local(4)), B)


@pytest.mark.slow
def test_a_cache_of_all_keys_gives_the_same():
    layer, cache = built(), None
    cache = KVCache(T, whole=True).initial(layer, B)
    outputs = []
    for start, end in ((0, 6), (6, 7), (7, T)):
        output, cache = layer(X[:, start:end], X[:, start:end], cache=cache)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), layer(X, X), atol=1e-5)


def test_padding_of_a_prompt_does_not_enter_the_sums():
    """The columns of a mask are positions from 0 on."""
    layer, real = built(), REAL[:2, :T]
    real = np.concatenate([real, real[:1]])
    output = decode(layer, [7, 1, 3, 2], value_mask=real)
    np.testing.assert_allclose(output, layer(X, X, value_mask=real), atol=1e-5)


@pytest.mark.slow
def test_positions_of_queries_turn_new_keys_too():
    """Rows that begin at other positions, as prompts of other lengths do."""
    layer = built(key_dim=4, position="rotary")
    starts = np.array([[0], [5], [2]])
    cache, outputs = KVCache(1).initial(layer, B), []
    for first, end in ((0, 6), (6, 7), (7, T)):
        positions = starts + np.arange(first, end)
        part = X[:, first:end]
        output, cache = layer(part, part, query_positions=positions, cache=cache)
        outputs.append(output)
    positions = starts + np.arange(T)
    expected = layer(X, X, query_positions=positions, key_positions=positions)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), expected, atol=1e-5)
    assert np.abs(expected - layer(X, X)).max() > 0.1


CACHE = {"sums": np.zeros((B, N, H, HV + 1), "float32"), "index": np.array(3, "int32")}


@pytest.mark.parametrize(
    "layer, call, sentence",
    [
        ({}, {"key_positions": np.arange(T)}, "keeps no single keys.*whole=True"),
        ({}, {"attention_mask": np.ones((T, T), bool)}, "keeps no single keys"),
        ({}, {"return_attention_scores": True}, "no scores.*return_attention_scores=True"),
        ({"dropout": 0.1}, {"training": True}, "no weights to drop.*training=True"),
        ({"pattern": Local(3)}, {}, r"the pattern that it was made for.*Local\(3\)"),
    ],
)
def test_arguments_that_need_single_keys_raise(layer, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        built(**layer)(X, X, cache=CACHE, **call)


def test_a_score_without_features_refuses_sums():
    layer = MultiHeadAttention(N, H, value_dim=HV, score=DotProduct(), pattern=Causal())
    with pytest.raises(ValueError, match=r"the score and the pattern.*score=DotProduct\(\)"):
        layer(X, X, cache=CACHE)


def test_dense_takes_the_plan_as_causal_does():
    """Not only equal: linear, so the matrix of scores is never made."""
    layer = MultiHeadAttention(1, 2, score=Kernel(), pattern=Dense())
    x = np.ones((1, 60_000, 2), "float32")
    assert np.isfinite(layer(x, x)).all()
