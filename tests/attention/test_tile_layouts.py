"""Blockwise functions in uses that no pattern has; tests/patterns/test_plans.py has the others."""

import numpy as np
import oracles
import pytest
from index_sets import SMALL_TILES
from keras import ops

from keras_attn.attention.inputs import AttentionInputs, PositionRange, positions_tensor
from keras_attn.attention.plans import BlockLocal, Chunked
from keras_attn.patterns.fixed import Summaries
from keras_attn.patterns.strided import Columns
from keras_attn.scores import DotProduct, Score

B, N, T, H = 2, 3, 37, 4
QUERY, KEY, VALUE = (oracles.random(B, N, T, H, seed=seed) for seed in range(3))
PLACES = np.arange(T)


def operands(query=QUERY, key=KEY, value=VALUE, query_positions=None, key_positions=None, **more):
    length, num_keys = query.shape[2], key.shape[2]
    if query_positions is None:
        query_positions = PositionRange(num_keys - length, length)
    if key_positions is None:
        key_positions = PositionRange(0, num_keys)
    score = more.pop("score", DotProduct())
    return AttentionInputs(
        *(query, key, value, query_positions, key_positions, score), tile_sizes=SMALL_TILES, **more
    )


def expected(allowed, bias=0.0, query=QUERY, key=KEY, value=VALUE):
    """The output and the log of the sum of exponentials."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    logits = np.einsum("bnth,bnsh->bnts", query, key) / H**0.5 + bias
    weights = np.exp(np.where(allowed, logits, -np.inf))
    total = weights.sum(-1, keepdims=True)
    return weights @ value / np.where(total > 0, total, 1), np.log(np.maximum(total, 1e-300))


def attend_chunked(inputs, allowed=None, log_weight=False, **options):
    return Chunked(allowed, **options).attend(inputs, log_weight)


def attend_block_local(inputs, *arguments, log_weight=False, **options):
    return BlockLocal(*arguments, **options).attend(inputs, log_weight)


def attend_strided(inputs, stride, log_weight=False):
    return Columns(None, stride).attend(inputs, log_weight)


def attend_fixed(inputs, allowed, stride, summary, log_weight=False):
    return Summaries(allowed, stride, summary).attend(inputs, log_weight)


def assert_equal(outputs, wanted):
    np.testing.assert_allclose(outputs[0], wanted[0], atol=1e-5)
    some = wanted[1] > -600
    np.testing.assert_allclose(np.asarray(outputs[1])[some], wanted[1][some], atol=1e-5)


@pytest.mark.parametrize("block, before, after", [(4, 2, 3), (40, 0, 1)])
def test_neighbouring_blocks(block, before, after):
    """Without a function that allows, all keys of the blocks are met."""
    outputs = attend_block_local(operands(), None, block, before, after, log_weight=True)
    apart = PLACES // block - PLACES[:, None] // block
    assert_equal(outputs, expected((apart >= -before) & (apart <= after)))


class ByDistance(Score):
    """A score that looks at positions, whatever form they have."""

    def __call__(self, query, key, query_positions, key_positions):
        i, j = positions_tensor(query_positions), positions_tensor(key_positions)
        distance = ops.cast(i[..., :, None] - j[..., None, :], "float32")
        return DotProduct()(query, key) + ops.sin(distance)


@pytest.mark.parametrize(
    "attend, shape",
    [
        (lambda x: attend_block_local(x, lambda i, j: j <= i, T), (1, 1, T)),
        (lambda x: attend_chunked(x, lambda i, j: j <= i), (B, N, T)),
    ],
)
def test_positions_in_any_order(attend, shape):
    """A row of the batch and a head may each have an order of its own, as after sorting."""
    order = np.random.default_rng(0).permuted(np.broadcast_to(PLACES, shape), axis=-1)
    order = order.astype("int32")
    inputs = operands(query_positions=order, key_positions=order, score=ByDistance())
    distance = order[..., :, None] - order[..., None, :]
    output = attend(inputs)[0]
    np.testing.assert_allclose(output, expected(distance >= 0, np.sin(distance))[0], atol=1e-5)


@pytest.mark.parametrize(
    "earlier, length, step",
    [(0, 1, 1), (0, 4, 3), (0, 7, 1), (0, 8, 3), (0, 37, 3), (6, 7, 1), (6, 20, 3), (33, 37, 1)],
)
def test_groups_of_queries_that_see_more_and_more_keys(earlier, length, step):
    """Lengths around the smallest group; with keys before the first query, and without."""
    query = QUERY[:, :, earlier:length]
    key, value = KEY[:, :, :length], VALUE[:, :, :length]
    inputs = operands(
        *(query, key, value),
        query_positions=PositionRange(5 + earlier * step, length - earlier, step),
        key_positions=PositionRange(5, length, step),
        score=ByDistance(),
    )
    distance = step * (PLACES[earlier:length, None] - PLACES[:length])
    wanted = expected(distance >= 0, np.sin(distance), query, key, value)
    outputs = attend_chunked(
        inputs, lambda i, j: j <= i, visible=lambda end: earlier + end, log_weight=True
    )
    assert_equal(outputs, wanted)


@pytest.mark.parametrize("stride", [1, 4, 50])
def test_columns(stride):
    outputs = attend_strided(operands(score=ByDistance()), stride, log_weight=True)
    distance = PLACES[:, None] - PLACES
    allowed = (distance >= 0) & (distance % stride == 0)
    assert_equal(outputs, expected(allowed, np.sin(distance)))


@pytest.mark.parametrize("stride, summary", [(5, 2), (5, 5), (50, 3)])
def test_summaries(stride, summary):
    outputs = attend_fixed(
        operands(score=ByDistance()), lambda i, j: j <= i, stride, summary, log_weight=True
    )
    distance = PLACES[:, None] - PLACES
    allowed = (distance >= 0) & (PLACES % stride >= stride - summary)
    assert_equal(outputs, expected(allowed, np.sin(distance)))
