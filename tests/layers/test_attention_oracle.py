"""MultiHeadAttention against the paper's formula in loops, and laws that hold for any weights."""

import math

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.layers import MultiHeadAttention

B, T, S, N, H, HV, D, DV = 2, 3, 5, 4, 7, 11, 13, 17
QUERY, SELF = oracles.random(B, T, D), oracles.random(B, S, D)
VALUE = oracles.random(B, S, DV)
KEY = oracles.random(B, S, 19)
PADDING = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 1]], bool)
# By random choice, but with an allowed key for every query under every pattern.
PAIRS = np.random.default_rng(3).random((B, N, T, S)) < 0.6
PAIRS[..., 0] = True

MASKS = {
    "none": {},
    "padding": {"value_mask": PADDING},
    "pairs (T, S)": {"attention_mask": PAIRS[0, 0]},
    "pairs (B, T, S)": {"attention_mask": PAIRS[:, 0]},
    "pairs (B, N, T, S)": {"attention_mask": PAIRS},
    "pairs (B, 1, 1, S)": {"attention_mask": PAIRS[:, :1, :1]},
    "padding and pairs": {"value_mask": PADDING, "attention_mask": PAIRS},
}


def allowed_by(value_mask=None, attention_mask=None, causal=False, length=T, keys=S):
    allowed = np.ones((B, N, length, keys), bool)
    if value_mask is not None:
        allowed &= value_mask[:, None, None, :]
    if attention_mask is not None:
        heads = {2: lambda m: m, 3: lambda m: m[:, None], 4: lambda m: m}[attention_mask.ndim]
        allowed &= heads(attention_mask)
    if causal:
        allowed &= oracles.causal(length, keys)
    return allowed


def built(*shapes, **arguments):
    layer = MultiHeadAttention(N, H, **arguments)
    layer.build(*(x.shape for x in shapes))
    oracles.scramble(layer)
    return layer


def oracle_score(layer, name):
    if name == "additive":
        return oracles.additive(*(oracles.numpy_of(w) for w in layer.score.weights))
    return {"scaled_dot": oracles.scaled_dot, "dot": oracles.dot}[name]


# Each kind of mask with one score, each score under both patterns.
@pytest.mark.parametrize(
    "score, pattern, masks",
    [
        (("scaled_dot", "dot", "additive")[number % 3], ("dense", "causal")[number % 2], name)
        for number, name in enumerate(MASKS)
    ],
)
def test_oracle(score, pattern, masks):
    masks = MASKS[masks]
    layer = built(QUERY, VALUE, score=score, pattern=pattern, value_dim=HV)
    output, scores = layer(QUERY, VALUE, return_attention_scores=True, **masks)
    expected, expected_scores = oracles.attention(
        QUERY,
        VALUE,
        oracles.attention_weights(layer),
        allowed_by(**masks, causal=pattern == "causal"),
        oracle_score(layer, score),
    )
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)


def test_oracle_without_biases():
    options = {"num_key_value_heads": 2, "use_bias": False, "value_dim": HV, "output_shape": 23}
    layer = built(QUERY, VALUE, **options)
    assert len(layer.weights) == 4
    expected, _ = oracles.attention(QUERY, VALUE, oracles.attention_weights(layer), True)
    output = layer(QUERY, VALUE)
    assert output.shape == (B, T, 23)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_oracle_with_a_key_of_its_own():
    layer = built(QUERY, VALUE, KEY)
    weights = oracles.attention_weights(layer)
    expected, _ = oracles.attention(QUERY, VALUE, weights, PADDING[:, None, None], key=KEY)
    np.testing.assert_allclose(layer(QUERY, VALUE, KEY, value_mask=PADDING), expected, atol=1e-5)


def test_joined_projections_equal_separate_ones():
    layer = built(SELF, SELF, num_key_value_heads=2, value_dim=HV)
    x, copy, other = (ops.array(SELF) for _ in range(3))
    joined = layer(x, x)
    for arguments in ((x, copy), (x, copy, other), (x, copy, x)):
        np.testing.assert_allclose(joined, layer(*arguments), atol=1e-6)


def test_causal_by_positions_is_aligned_to_the_last_keys():
    layer = built(QUERY, SELF)
    allowed = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], bool)
    expected, _ = oracles.attention(QUERY, SELF, oracles.attention_weights(layer), allowed)
    np.testing.assert_allclose(layer(QUERY, SELF, use_causal_mask=True), expected, atol=1e-5)


def test_the_given_positions_decide_the_allowed_pairs():
    """Shuffled keys with their positions, and rows that start at different positions."""
    layer = built(QUERY, SELF, pattern="causal")
    order = np.array([3, 0, 4, 1, 2])
    query_positions = np.array([[0, 3, 1], [4, 2, 0]])
    allowed = order[None, None, :] <= query_positions[:, :, None]
    expected, _ = oracles.attention(QUERY, SELF, oracles.attention_weights(layer), allowed[:, None])
    output = layer(QUERY, SELF, query_positions=query_positions, key_positions=order)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    by_row = layer(
        QUERY, SELF, query_positions=query_positions, key_positions=np.stack([order, order])
    )
    np.testing.assert_array_equal(by_row, output)


def test_asking_for_scores_changes_nothing():
    layer = built(QUERY, VALUE, score="additive", dropout=0.5, seed=7)
    arguments = {"value_mask": PADDING, "use_causal_mask": True, "training": True}

    def run(**more):
        layer.seed_generator.state.assign([7, 0])
        return layer(QUERY, VALUE, **arguments, **more)

    with_scores, scores = run(return_attention_scores=True)
    np.testing.assert_array_equal(run(), with_scores)
    assert scores.shape == (B, N, T, S)
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"


def test_dropout_repeats_with_its_seed():
    first, second, other = (built(QUERY, VALUE, dropout=0.5, seed=s) for s in (5, 5, 6))
    output = first(QUERY, VALUE, training=True)
    np.testing.assert_array_equal(output, second(QUERY, VALUE, training=True))
    assert np.any(output != other(QUERY, VALUE, training=True))


@pytest.mark.parametrize("kernel", ["query", "key", "value", "output"])
def test_kernels_are_drawn_as_the_matrices_that_they_are(kernel):
    """Glorot's uniform variance 2 / (fan in + fan out), of (D, N H) and (N H, D) matrices."""
    heads, size, hidden = 8, 16, 160
    layer = MultiHeadAttention(heads, size)
    layer.build((None, None, hidden))
    weight = oracles.numpy_of(getattr(layer, f"{kernel}_kernel"))
    expected = 2 / (hidden + heads * size)
    # The variance of the sample variance of n uniform numbers is 4/5 of their variance squared / n.
    assert abs(weight.var() - expected) < 5 * expected * math.sqrt(0.8 / weight.size)
    assert np.abs(weight).max() <= math.sqrt(3 * expected)
