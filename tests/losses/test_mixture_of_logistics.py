"""Against the formula in float64 loops; sums over all values; extreme parameters; samples."""

import itertools
import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.losses import MixtureOfLogistics

K = 3


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def oracle(values, parameters, channels, num_values):
    """p of one pixel; the parameters in the order that the class documents."""
    parameters = [float(x) for x in parameters]
    take = iter(parameters)
    logits = [next(take) for _ in range(K)]
    means = [[next(take) for _ in range(K)] for _ in range(channels)]
    log_scales = [[next(take) for _ in range(K)] for _ in range(channels)]
    pairs = [(c, b) for c in range(channels) for b in range(c)]
    coefficients = {pair: [next(take) for _ in range(K)] for pair in pairs}
    assert next(take, None) is None
    x = [2 * v / (num_values - 1) - 1 for v in values]
    total = 0.0
    for k in range(K):
        p = math.exp(logits[k]) / sum(map(math.exp, logits))
        for c in range(channels):
            mean = means[c][k]
            for b in range(c):
                mean += math.tanh(coefficients[c, b][k]) * x[b]
            scale = math.exp(max(log_scales[c][k], -7.0))
            upper = 1.0
            if values[c] < num_values - 1:
                upper = sigmoid((x[c] + 1 / (num_values - 1) - mean) / scale)
            lower = 0.0
            if values[c] > 0:
                lower = sigmoid((x[c] - 1 / (num_values - 1) - mean) / scale)
            p *= upper - lower
        total += p
    return total


def every_pixel(channels, num_values):
    return np.array(list(itertools.product(range(num_values), repeat=channels)))


def parameters_of(loss, *shape, seed=0, scale=1.0):
    return oracles.random(*shape, loss.num_parameters, seed=seed, scale=scale)


@pytest.mark.parametrize("channels, num_values", [(1, 256), (2, 17), (3, 5)])
def test_probabilities_equal_an_oracle_and_sum_to_one(channels, num_values):
    loss = MixtureOfLogistics(K, channels, num_values)
    parameters = parameters_of(loss)
    pixels = every_pixel(channels, num_values)
    everywhere = np.broadcast_to(parameters, (len(pixels), loss.num_parameters))
    log_p = loss.log_probability(pixels, everywhere).numpy()
    expected = [oracle(pixel, parameters, channels, num_values) for pixel in pixels]
    np.testing.assert_allclose(np.exp(log_p), expected, rtol=2e-5)
    assert np.exp(log_p.astype("float64")).sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_number_of_parameters(channels):
    """Ten a mixture for three channels, as in the paper."""
    expected = {1: 3, 2: 6, 3: 10, 4: 15}[channels]
    assert MixtureOfLogistics(K, channels).num_parameters == K * expected


EXTREMES = {
    "narrow, at the edge": (-1.0, -7.0),
    "narrower than is allowed": (0.3, -100.0),
    "wide": (0.0, 5.0),
    "wider than floats go": (0.0, 200.0),
    "far below": (-1e6, 0.0),
    "far above, and narrow": (1e4, -7.0),
}


@pytest.mark.parametrize("case", EXTREMES)
def test_extremes_are_finite_and_sum_to_one(case):
    loss = MixtureOfLogistics(1, 1)
    mean, log_scale = EXTREMES[case]
    parameters = tf.constant(np.tile([0.0, mean, log_scale], (256, 1)), "float32")
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        log_p = loss.log_probability(np.arange(256)[:, None], parameters)
    slope = tape.gradient(log_p, parameters)
    assert np.isfinite(log_p).all() and np.isfinite(slope).all()
    total = np.exp(log_p.numpy().astype("float64")).sum()
    assert total == pytest.approx(1.0, abs=2e-5)


def test_a_value_far_from_the_mean_has_the_tail_of_the_logistic():
    """If probabilities underflow, log p falls by distance over scale, and so does its slope."""
    loss = MixtureOfLogistics(1, 1)
    parameters = tf.constant([[0.0, -1.0, -7.0]])
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        log_p = loss.log_probability(np.array([[200]]), parameters)
    scale = math.exp(-7)
    lower, upper = (2 * (200 - 0.5) / 255 / scale, 2 * (200 + 0.5) / 255 / scale)
    # log(F(upper) - F(lower)) = log(exp(-lower) - exp(-upper)) so far out.
    expected = -lower + math.log(-math.expm1(lower - upper))
    assert float(log_p[0]) == pytest.approx(expected, rel=1e-5)
    assert expected < -1000
    slope = tape.gradient(log_p, parameters).numpy()[0]
    assert slope[1] == pytest.approx(1 / scale, rel=1e-3)


def test_samples_follow_the_distribution():
    channels, num_values = 2, 4
    loss = MixtureOfLogistics(K, channels, num_values)
    parameters = parameters_of(loss, seed=1)
    draws = 40_000
    samples = loss.sample(np.tile(parameters, (draws, 1)), seed=3).numpy()
    assert samples.shape == (draws, channels)
    pixels = every_pixel(channels, num_values)
    expected = np.array([oracle(pixel, parameters, channels, num_values) for pixel in pixels])
    place = samples @ num_values ** np.arange(channels)[::-1]
    shares = np.bincount(place, minlength=len(pixels)) / draws
    # Cumulative sums, so that many rare values count together.
    assert np.abs(np.cumsum(shares - expected)).max() < 5 / math.sqrt(4 * draws)
    assert shares[expected > 1 / draws * 100].min() > 0
    again = loss.sample(np.tile(parameters, (draws, 1)), seed=3)
    np.testing.assert_array_equal(samples, again)


def test_the_loss_is_the_mean_over_all_values():
    loss = MixtureOfLogistics(K, 3, 5)
    parameters = parameters_of(loss, 2, 7)
    values = np.random.default_rng(0).integers(0, 5, (2, 7, 3))
    nats = [-math.log(oracle(values[index], parameters[index], 3, 5)) for index in np.ndindex(2, 7)]
    assert float(loss(values, parameters)) == pytest.approx(sum(nats) / 42, rel=1e-5)
    weighted = loss(values, parameters, sample_weight=np.array([1.0, 0.0]))
    assert float(weighted) == pytest.approx(sum(nats[:7]) / 42, rel=1e-5)


def test_low_precision_parameters_are_computed_in_float32():
    loss = MixtureOfLogistics(K)
    rounded = keras.ops.cast(parameters_of(loss, 2, 7), "bfloat16")
    values = np.random.default_rng(0).integers(0, 256, (2, 7, 3))
    value = loss(values, rounded)
    assert value.dtype == "float32"
    assert float(value) == float(loss(values, keras.ops.cast(rounded, "float32")))


def test_config_round_trip():
    loss = MixtureOfLogistics(4, 2, 17, name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert again.get_config() == loss.get_config()
    assert isinstance(again, MixtureOfLogistics)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: MixtureOfLogistics(0), "`num_mixtures`.*num_mixtures=0"),
        (lambda: MixtureOfLogistics(K, 0), "`channels`.*channels=0"),
        (lambda: MixtureOfLogistics(K, 1, 1), "`num_values`.*num_values=1"),
        (
            lambda: MixtureOfLogistics(K)(np.zeros((2, 7, 3)), np.zeros((2, 7, 31))),
            r"`y_pred`.*30\).*\(2, 7, 31\)",
        ),
        (
            lambda: MixtureOfLogistics(K)(np.zeros((2, 7)), np.zeros((2, 7, 30))),
            r"`y_true`.*\(2, 7, 3\).*\(2, 7\)",
        ),
    ],
)
def test_bad_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
