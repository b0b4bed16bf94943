"""Mixtures of discretised logistic distributions over the values of pixels."""

import itertools
import math

from keras import backend, ops

LEAST_LOG_SCALE = -7.0
# Bound of uniform numbers: the quantiles of a logistic and a Gumbel at 0 and 1 are infinite.
LEAST_UNIFORM = 1e-7
# Below this width, relative to the scale, log(1 - exp(-width)) is log(width) - width / 2 to 1e-7.
NARROW = 1e-3


def num_parameters(num_mixtures, channels):
    """Return the number of parameters of a pixel: weights, means, log-scales, coefficients."""
    return num_mixtures * (1 + 2 * channels + channels * (channels - 1) // 2)


def log_probability(values, parameters, num_mixtures, num_values):
    """Return log p(values) of the pixels (...,), float64 if the parameters are, else float32.

        p(v) = sum_k softmax(a)_k prod_c [F((x_c + h - m_kc) / s_kc) - F((x_c - h - m_kc) / s_kc)]

    with F the sigmoid, x = 2 v / (num_values - 1) - 1, h = 1 / (num_values - 1), the bins of
    the first and the last value unbounded, and m_kc = mean_kc + sum_{b < c} tanh(r_kcb) x_b.
    `values` (..., C) are 0 .. num_values - 1; `parameters` are (..., num_parameters(K, C)).
    """
    channels = values.shape[-1]
    log_weights, means, log_scales, coefficients = split(parameters, num_mixtures, channels)
    x = ops.expand_dims(_to_interval(ops.cast(values, means.dtype), num_values), -1)  # (..., C, 1)
    xs = [x[..., c, :] for c in range(channels)]
    means = [_mean(means, coefficients, c, xs[:c]) for c in range(channels)]
    centred = x - ops.stack(means, axis=-2)  # (..., C, K)
    half = 1.0 / (num_values - 1)
    scale = ops.exp(-log_scales)
    upper, lower = (centred + half) * scale, (centred - half) * scale
    # log F(upper) and log(1 - F(lower)); with the bin's width w = upper - lower,
    # F(upper) - F(lower) = F(upper) (1 - F(lower)) (1 - exp(-w)), where nothing cancels.
    below, above = -ops.softplus(-upper), -ops.softplus(lower)
    inside = below + above + _log_one_less_exp(2 * half * scale, math.log(2 * half) - log_scales)
    is_first, is_last = ops.equal(values, 0), ops.equal(values, num_values - 1)
    bins = ops.where(
        ops.expand_dims(is_first, -1), below, ops.where(ops.expand_dims(is_last, -1), above, inside)
    )
    return ops.logsumexp(log_weights + ops.sum(bins, axis=-2), axis=-1)


def sample(parameters, uniform, num_mixtures, channels, num_values):
    """Sample the pixels' values, int32 (..., C), channel after channel.

    `parameters` are (..., P), and `uniform` numbers between 0 and 1, (..., K + C).
    """
    log_weights, means, log_scales, coefficients = split(parameters, num_mixtures, channels)
    uniform = ops.clip(ops.cast(uniform, means.dtype), LEAST_UNIFORM, 1.0 - LEAST_UNIFORM)
    mixture_numbers, channel_numbers = ops.split(uniform, [num_mixtures], axis=-1)
    # Keras's argmax looks at the bits of numbers, which LiteRT cannot.
    _, chosen = ops.top_k(log_weights - ops.log(-ops.log(mixture_numbers)), 1)
    chosen = ops.one_hot(chosen[..., 0], num_mixtures, dtype=means.dtype)
    chosen = ops.expand_dims(chosen, -2)  # (..., 1, K)

    def at_chosen(x):
        return ops.sum(x * chosen, axis=-1, keepdims=True)

    means, coefficients = at_chosen(means), None if channels == 1 else at_chosen(coefficients)
    noise = ops.log(channel_numbers) - ops.log1p(-channel_numbers)
    noise = ops.expand_dims(noise, -1)  # (..., C, 1)
    noise = ops.exp(at_chosen(log_scales)) * noise
    values, drawn = [], []
    for c in range(channels):
        x = _mean(means, coefficients, c, drawn) + noise[..., c, :]
        value = ops.round((x + 1.0) * (num_values - 1) / 2.0)
        values.append(ops.clip(value, 0, num_values - 1))
        # The next channel is conditioned on the rounded value, as in the loss.
        drawn.append(_to_interval(values[-1], num_values))
    return ops.cast(ops.concatenate(values, axis=-1), "int32")


def split(parameters, num_mixtures, channels):
    """Split into log-weights (..., K), means, log-scales (..., C, K), coefficients (..., R, K).

    They are float64 if the parameters are, else float32. The coefficients, None for one channel,
    are of channel 1 on 0, 2 on 0, 2 on 1 ...
    """
    parameters = ops.cast(parameters, backend.result_type(parameters.dtype, "float32"))
    pairs = channels * (channels - 1) // 2
    counts = [num_mixtures, channels * num_mixtures, channels * num_mixtures]
    parts = ops.split(parameters, list(itertools.accumulate(counts)), axis=-1)

    def by_mixture(x, count):
        return ops.reshape(x, (*ops.shape(x)[:-1], count, num_mixtures))

    log_scales = ops.maximum(by_mixture(parts[2], channels), LEAST_LOG_SCALE)
    coefficients = ops.tanh(by_mixture(parts[3], pairs)) if pairs else None
    return ops.log_softmax(parts[0]), by_mixture(parts[1], channels), log_scales, coefficients


def _mean(means, coefficients, channel, before):
    """Return means (..., K) of a channel, given the channels `before`, (..., 1) in [-1, 1]."""
    mean, first = means[..., channel, :], channel * (channel - 1) // 2
    for b, x in enumerate(before):
        mean += coefficients[..., first + b, :] * x
    return mean


def _to_interval(values, num_values):
    return 2.0 * values / (num_values - 1) - 1.0


def _log_one_less_exp(x, log_x):
    """Return log(1 - exp(-x)) for x > 0."""
    is_narrow = x < NARROW
    safe = ops.where(is_narrow, 1.0, x)
    return ops.where(is_narrow, log_x - 0.5 * x, ops.log(-ops.expm1(-safe)))
