"""Pooling of the outputs at all positions, and the layers of a sentence vector after it."""

import math

import numpy as np
import pytest
from keras import ops

from keras_attn import layers

X = np.random.default_rng(3).normal(size=(3, 7, 5)).astype("float32")
LENGTHS = [7, 4, 1]
MASK = np.arange(7) < np.array(LENGTHS)[:, None]
PROMPTS = np.array([2, 3, 0], "int32")
ORACLE = {
    "first": lambda x, t: x[0],
    "last": lambda x, t: x[-1],
    "max": lambda x, t: x.max(axis=0),
    "mean": lambda x, t: x.mean(axis=0),
    "mean_sqrt_len": lambda x, t: x.sum(axis=0) / math.sqrt(len(x)),
    "weighted_mean": lambda x, t: (x * t).sum(axis=0) / t.sum(),
}


def pooled(names, prompts):
    """The poolings by the formula, of each row alone and without its padding."""
    rows = [
        [ORACLE[name](x[start:length], np.arange(start, length)[:, None] + 1.0) for name in names]
        for x, length, start in zip(X, LENGTHS, prompts, strict=True)
    ]
    return np.array(rows).reshape(3, -1)


@pytest.mark.parametrize("prompts", [None, PROMPTS])
def test_poolings_are_those_of_the_formula(prompts):
    names = ["weighted_mean", "max", "first", "mean", "last", "mean_sqrt_len"]
    layer = layers.Pool(names, include_prompt=prompts is None)
    outputs = layer(X, prompts, mask=MASK)
    expected = pooled(names, [0] * 3 if prompts is None else prompts)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert layer.compute_output_shape(X.shape) == (3, 30)


def test_tokens_of_one_id_alone_are_pooled():
    token_ids = np.random.default_rng(5).integers(2, size=(3, 7))
    token_ids[:, 0] = 1
    layer = layers.Pool(["last", "mean"], token_id=1)
    outputs = layer(X, mask=MASK, token_ids=token_ids)
    for row, (x, ids, length) in enumerate(zip(X, token_ids, LENGTHS, strict=True)):
        read = [x[i] for i in range(length) if ids[i] == 1]
        expected = np.concatenate([read[-1], np.mean(read, axis=0)])
        np.testing.assert_allclose(outputs[row], expected, atol=1e-6)
    with pytest.raises(ValueError, match="needs the argument `token_ids`"):
        layer(X)
    with pytest.raises(ValueError, match="token_id"):
        layers.Pool("first", token_id=1)


def test_the_first_position_is_one_alone_and_among_others():
    """Also where it is padding, as in the classes of transformers."""
    alone = layers.Pool("first")(X, mask=~MASK)
    np.testing.assert_array_equal(alone, X[:, 0])
    for prompts in (None, np.zeros(3, "int32")):
        joined = layers.Pool(["first", "max"], include_prompt=prompts is None)
        np.testing.assert_array_equal(joined(X, prompts, mask=~MASK)[:, :5], X[:, 0])


@pytest.mark.parametrize("pooling", ["last", ["last"]])
def test_the_last_token_alone_is_before_padding_at_the_end(pooling):
    assert layers.Pool(pooling).padding_at_end and not layers.Pool(["last", "max"]).padding_at_end


@pytest.mark.parametrize("shape", [(2, 0, 5), (2, 3, 5)])
def test_a_text_without_tokens_has_a_finite_vector(shape):
    outputs = layers.Pool(["max", "mean", "weighted_mean"])(
        np.ones(shape, "float32"), mask=np.zeros(shape[:2], bool)
    )
    np.testing.assert_array_equal(outputs, np.zeros((2, 15)))


@pytest.mark.parametrize("units", [5, 3])
def test_a_projection_adds_its_input(units):
    layer, x = layers.Projection(units, "relu", residual=True), X[:, 0]
    outputs = layer(x)
    kernel, bias, *residual = map(ops.convert_to_numpy, layer.weights)
    expected = np.maximum(x @ kernel + bias, 0) + (x @ residual[0] if residual else x)
    assert len(residual) == (units != 5)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_vectors_are_cut_after_their_first_numbers():
    np.testing.assert_array_equal(layers.Truncate(2)(X[:, 0]), X[:, 0, :2])
    assert layers.Truncate(9).compute_output_shape((3, 5)) == (3, 5)


@pytest.mark.parametrize("pooling", ["median", ["mean", "median"], [], 3])
def test_an_unknown_pooling_is_refused(pooling):
    with pytest.raises(ValueError, match="`pooling` must be .* Received: pooling="):
        layers.Pool(pooling)
