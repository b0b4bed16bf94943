"""Each value of attention since 2020 with each other one: every plan is the formula's result."""

import numpy as np
import oracles
import pytest
from combinations import (
    NORMS,
    PATTERNS,
    POSITIONS,
    SCORES,
    H,
    N,
    attend,
    covering_rows,
    each_value_once,
)
from decoding import check_pieces
from gradients import output_and_gradients
from index_sets import SMALL_TILES

from keras_attn.layers import DifferentialAttention, MultiHeadAttention

B, T, D = 2, 37, 5
X = oracles.random(B, T, D)
REAL = np.arange(T) < np.array([[T], [29]])
# Documents, before or after padding.
IDS = np.array([[7] * 11 + [8] * 3 + [9] * 19 + [0] * 4, [0] * 2 + [5] * 13 + [6] * 22], "int32")
ROWS = list(covering_rows())
FEW = [next(row for row in ROWS if (row["rows"], row["kind"]) == ("packed", "differential"))]


def parameters(rows):
    """Each row as a parameter; those beyond a few are slow."""
    return [
        pytest.param(
            row, id="-".join(map(str, row.values())), marks=[pytest.mark.slow] * (row not in FEW)
        )
        for row in rows
    ]


def layer_of(row, implementation):
    arguments = {name: row[name] for name in ("sinks", "use_gate", "num_key_value_heads")}
    kind = {"plain": MultiHeadAttention, "differential": DifferentialAttention}[row["kind"]]
    layer = kind(
        *(N, H, 2)[: 3 if row["kind"] == "differential" else 2],
        score=SCORES[row["score"]][0](),
        pattern=PATTERNS[row["pattern"]][0],
        position=POSITIONS[row["position"]][0](),
        qk_norm=NORMS[row["qk_norm"]][0](),
        implementation=implementation,
        **arguments,
    )
    layer.tile_sizes = SMALL_TILES
    layer.build(X.shape, X.shape)
    for seed, weight in enumerate(layer.trainable_weights):
        spread = 0.3 if len(weight.shape) < 2 else 0.6
        weight.assign(weight + oracles.random(*weight.shape, seed=seed, scale=spread))
    return layer


def call_of(row):
    calls = {"whole": {}, "padded": {"value_mask": REAL}, "packed": {"segment_ids": IDS}}
    return calls[row["rows"]]


def formula(layer, row):
    """The output (B, T, D), and the tokens that are not padding of a packed row."""
    output, real = np.zeros((B, T, D)), np.ones((B, T), bool)
    for b in range(B):
        x, keys = X[b].astype("float64"), np.ones(T, bool)
        if row["rows"] == "packed":
            real[b] = IDS[b] > 0
            for number in np.unique(IDS[b][real[b]]):
                places = IDS[b] == number
                output[b, places] = attend(row, layer, x[places], keys[places])
        else:
            output[b] = attend(row, layer, x, REAL[b] if row["rows"] == "padded" else keys)
    return output, real


@pytest.mark.parametrize("row", parameters(ROWS))
def test_plan_and_matrix_equal_the_formula(row):
    layers = [layer_of(row, way) for way in ("blockwise", "dense")]
    layers[1].set_weights(layers[0].get_weights())
    tiles, matrix = (output_and_gradients(layer, X, **call_of(row)) for layer in layers)
    expected, real = formula(layers[1], row)
    largest = np.abs(expected).max()
    assert largest > 0.1
    for output in (matrix[0], tiles[0]):
        np.testing.assert_allclose(output[real] / largest, expected[real] / largest, atol=5e-5)
    names = ["input", *(weight.path for weight in layers[0].trainable_weights)]
    for name, one, other in zip(names, tiles[1:], matrix[1:], strict=True):
        scale = max(1.0, np.abs(other).max())
        np.testing.assert_allclose(one / scale, other / scale, atol=1e-4, err_msg=name)


# Each value once, since the plans above have met all others.
CAUSAL = [row for row in ROWS if PATTERNS[row["pattern"]][0].causal and row["rows"] != "padded"]
CAUSAL = list(each_value_once(CAUSAL))


@pytest.mark.slow
@pytest.mark.parametrize("row", CAUSAL, ids=lambda row: "-".join(map(str, row.values())))
def test_decoding_equals_the_whole_pass(row):
    layer = layer_of(row, "dense")
    check_pieces(layer, X, (13, 14, 15, 16), T, atol=2e-5)
