"""Bits per character of subwords, and bits per dimension of a likelihood."""

import numpy as np
import pytest
from token_batches import real_tokens, updated

from keras_attn.losses import MixtureOfLogistics
from keras_attn.metrics import BitsPerCharacter, BitsPerDim

LENGTHS = [2, 1, 1, 0, 2, 3, 1, 5, 4, 2, 7]


def test_subwords_are_divided_by_their_characters():
    """Id 3 is a mark: its bits count, and it is no character."""
    labels, bits = real_tokens()
    assert 3 in labels
    expected = bits.sum() / np.array(LENGTHS)[labels].sum()
    metric = updated(BitsPerCharacter(token_lengths=LENGTHS))
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_lengths_of_labels_of_any_dtype(dtype):
    metric, expected = updated(BitsPerCharacter(LENGTHS), dtype), updated(BitsPerCharacter(LENGTHS))
    assert float(metric.result()) == float(expected.result())


def test_a_mixture_is_divided_by_pixels_and_channels():
    likelihood = MixtureOfLogistics(2, 3, 16)
    rng = np.random.default_rng(0)
    metric, nats = BitsPerDim(likelihood), 0.0
    for length in (5, 2):
        values = rng.integers(0, 16, (2, length, 3))
        values[0, 0] = 0  # black, not padding
        parameters = rng.normal(size=(2, length, likelihood.num_parameters))
        metric.update_state(values, parameters)
        nats -= likelihood.log_probability(values, parameters).numpy().sum()
    expected = nats / np.log(2) / (2 * 7 * 3)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    weighted = BitsPerDim(likelihood)
    weighted.update_state(values, parameters, sample_weight=np.array([1.0, 0.0]))
    alone = BitsPerDim(likelihood)
    alone.update_state(values[:1], parameters[:1])
    assert float(weighted.result()) == pytest.approx(float(alone.result()), rel=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: BitsPerDim("dmol"), "`likelihood`.*Received: likelihood='dmol'"),
        (lambda: BitsPerCharacter(3), "`token_lengths` must have a number for each id.*=3"),
        (lambda: BitsPerCharacter([2, "x"]), r"`token_lengths\[1\]` must be a number.*'x'"),
        (lambda: updated(BitsPerCharacter(LENGTHS[:-1])), "`token_lengths`.*10 numbers.*11 ids"),
    ],
)
def test_bad_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
