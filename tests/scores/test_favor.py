"""Random features of the softmax: unbiased, causal to the bit, and saved."""

import keras
import numpy as np
import oracles
import pytest

from keras_attn.scores import FAVOR
from keras_attn.scores.favor import orthogonal_features

B, N, T, S, H = 2, 3, 5, 7, 6
QUERY, KEY = oracles.random(B, N, T, H), oracles.random(B, N, S, H)


def built(count, **arguments):
    score = FAVOR(count, **arguments)
    score.build_for((B, N, T, H), (B, N, S, H))
    return score


def test_logits_equal_the_formula():
    score = built(11, seed=1)
    w = oracles.numpy_of(score.projection)
    logits = oracles.numpy_of(score(QUERY, KEY))
    for b, n, t, s in np.ndindex(logits.shape):
        products = []
        for x in (QUERY[b, n, t], KEY[b, n, s]):
            x = x.astype("float64")
            products.append(np.exp(w @ x / H**0.25 - x @ x / (2 * H**0.5)) / 11**0.5)
        assert abs(logits[b, n, t, s] - np.log(products[0] @ products[1])) < 1e-4


def test_features_are_orthogonal_and_as_long_as_normal_vectors():
    w = oracles.numpy_of(orthogonal_features(4000 * H, H, seed=0)).reshape(4000, H, H)
    squares = np.einsum("grh,grh->gr", w, w)
    products = np.einsum("grh,gsh->grs", w, w) - squares[..., None] * np.eye(H)
    np.testing.assert_allclose(products, 0, atol=1e-4)
    assert abs(squares.mean() - H) < 0.1 and abs(squares.var() - 2 * H) < 0.5  # chi-square


def estimates(w, sums):
    """Mean of exp(w . x) over all features, divided by its expectation exp(|x|^2 / 2)."""
    return np.exp(w @ sums.T).mean(axis=0) / np.exp((sums**2).sum(axis=1) / 2)


@pytest.mark.slow
def test_estimates_of_the_softmax_are_unbiased():
    """Without the signs of the triangle of a QR decomposition they are off by several percent."""
    w = oracles.numpy_of(orthogonal_features(20_000 * H, H, seed=2))
    sums = np.concatenate([np.eye(H), -np.eye(H), np.random.default_rng(0).normal(size=(9, H)) / 3])
    np.testing.assert_allclose(estimates(w, sums), 1, atol=0.02)
    numbers = np.random.default_rng(1).standard_normal((20_000, H, H))
    lengths = np.linalg.norm(np.random.default_rng(2).standard_normal(numbers.shape), axis=-1)
    plain = np.linalg.qr(numbers)[0] * lengths[..., None]
    assert np.abs(estimates(plain.reshape(-1, H), sums) - 1).max() > 0.1


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_no_input_makes_a_logit_infinite(scale):
    logits = built(11, seed=0)(scale * QUERY, -scale * KEY)
    assert np.isfinite(logits).all()
    score, w = built(11, seed=0), oracles.numpy_of(built(11, seed=0).projection)
    longest = w[np.argmax((w**2).sum(-1))] * H**0.25
    keys = np.full((1, 1, 1, H), longest, "float32")
    assert np.isfinite(oracles.numpy_of(score.key_features(keys))).all()


def test_redraw_changes_the_features():
    score = built(11, seed=0)
    before = oracles.numpy_of(score.projection)
    score.redraw(seed=1)
    np.testing.assert_array_equal(score.projection, built(11, seed=1).projection)
    assert np.all(oracles.numpy_of(score.projection) != before)
    score.redraw(seed=0)
    np.testing.assert_array_equal(score.projection, before)


def test_layers_without_a_seed_have_features_of_their_own():
    keras.utils.set_random_seed(5)
    first, second = built(11), built(11)
    assert np.all(oracles.numpy_of(first.projection) != oracles.numpy_of(second.projection))
    keras.utils.set_random_seed(5)
    np.testing.assert_array_equal(built(11).projection, first.projection)


def test_repr_and_invalid_arguments():
    assert repr(FAVOR(64, seed=1)) == "FAVOR(num_features=64, seed=1)"
    with pytest.raises(ValueError, match="`num_features`.*num_features=0"):
        FAVOR(0)
