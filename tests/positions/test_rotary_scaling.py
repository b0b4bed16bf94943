"""Layouts, shares and scalings of rotary positions, compared with loops and in limiting cases."""

import math

import numpy as np
import oracles
import pytest
from decoding import check_pieces

from keras_attn.layers import MultiHeadAttention
from keras_attn.positions import NTK, Interpolation, Llama3, LongRoPE, Rotary, RotaryScaling, YaRN

B, N, T, H = 2, 3, 7, 12
X = oracles.random(B, N, T, H)
PLACES = np.array([0, 1, 5, 23, 100, 2, 60])
FACTORS = [1.0, 1.25, 1.5, 2.0, 3.0, 4.0]
SCALINGS = {
    "interpolation": lambda s: Interpolation(s),
    "ntk": lambda s: NTK(s),
    "yarn": lambda s: YaRN(s, 64),
    "yarn without truncation": lambda s: YaRN(s, 64, truncate=False),
    "yarn with other turns": lambda s: YaRN(s, 64, beta_fast=8.0, beta_slow=0.5),
    "llama 3": lambda s: Llama3(s, 64),
    "llama 3 with other turns": lambda s: Llama3(s, 64, low=2.0, high=6.0),
}
EACH = pytest.mark.parametrize("make", SCALINGS.values(), ids=SCALINGS)


def angle(scaling, i, size, base, length=64):
    """The angle per position of pair i, by the formulas of the papers."""
    plain = base ** (-2 * i / size)
    s = getattr(scaling, "factor", 1.0)
    match scaling:
        case None:
            return plain
        case Interpolation():
            return plain / s
        case NTK():
            return (base * s ** (size / (size - 2))) ** (-2 * i / size)
        case YaRN():
            low, high = (
                size * math.log(length / (t * 2 * math.pi)) / (2 * math.log(base))
                for t in (scaling.beta_fast, scaling.beta_slow)
            )
            if scaling.truncate:
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, size - 1)
            ramp = min(max((i - low) / (high - low), 0), 1)
            return plain * (1 - ramp) + plain / s * ramp
        case Llama3():
            wavelength = 2 * math.pi / plain
            low, high = scaling.low, scaling.high
            if wavelength < length / high:
                return plain
            if wavelength > length / low:
                return plain / s
            smooth = (length / wavelength - low) / (high - low)
            return (1 - smooth) * plain / s + smooth * plain
        case LongRoPE():
            return plain / scaling.factors[i]


def turned(x, scaling=None, layout="interleaved", share=H, base=10000.0, amplitude=1.0):
    out = np.array(x, "float64")
    for index in np.ndindex(*x.shape[:-1]):
        for i in range(share // 2):
            a, b = (i, i + share // 2) if layout == "half" else (2 * i, 2 * i + 1)
            turn = PLACES[index[-1]] * angle(scaling, i, share, base)
            sin, cos = amplitude * math.sin(turn), amplitude * math.cos(turn)
            first, second = x[(*index, a)], x[(*index, b)]
            out[(*index, a)] = first * cos - second * sin
            out[(*index, b)] = first * sin + second * cos
    return out


@pytest.mark.parametrize("layout, share", [("interleaved", H // 3), ("half", H)])
def test_output_equals_the_formula(layout, share):
    layer = Rotary(500.0, layout=layout, fraction=share / H)
    expected = turned(X, layout=layout, share=share, base=500.0)
    np.testing.assert_allclose(layer(X, PLACES), expected, atol=1e-4)
    np.testing.assert_array_equal(layer(X, PLACES)[..., share:], X[..., share:])


@EACH
def test_scaled_output_equals_the_formula(make):
    scaling, base = make(3.0), 50.0
    amplitude = 1 + 0.1 * math.log(3) if isinstance(scaling, YaRN) else 1.0
    expected = turned(X, scaling, base=base, amplitude=amplitude)
    np.testing.assert_allclose(Rotary(base, scaling=scaling)(X, PLACES), expected, atol=1e-4)


@pytest.mark.parametrize("make", [YaRN, lambda *sizes, **n: LongRoPE(*sizes, FACTORS, **n)])
def test_an_amplitude_takes_the_place_of_that_of_the_paper(make):
    scaling = make(4, 64, amplitude=1.5)
    assert type(scaling)(**scaling.get_config()) == scaling != make(4, 64)
    expected = turned(X, scaling, amplitude=1.5)
    np.testing.assert_allclose(Rotary(scaling=scaling)(X, PLACES), expected, atol=1e-4)


def test_defaults_are_the_numbers_of_the_papers():
    assert repr(YaRN(4, 64)) == "YaRN(4.0, 64)" and repr(Llama3(8, 64)) == "Llama3(8.0, 64)"
    assert YaRN(4, 64) == YaRN(4, 64, True, 32.0, 1.0) and Llama3(8, 64) == Llama3(8, 64, 1, 4)
    old = {"factor": 4.0, "length": 64, "factors": FACTORS}  # as version 0.2.0 saved it
    assert LongRoPE.from_config(old).amplitude == math.sqrt(1 + math.log(4) / math.log(64))


def test_a_text_of_more_positions_than_its_most_is_refused():
    position = Rotary(max_length=T)
    np.testing.assert_array_equal(position(X, PLACES), Rotary()(X, PLACES))
    with pytest.raises(ValueError, match="`x` must be at most 6 positions long"):
        Rotary(max_length=T - 1)(X)


def test_components_that_do_not_turn_have_no_amplitude():
    layer = Rotary(fraction=1 / 3, scaling=YaRN(4, 64))
    output = np.asarray(layer(X, PLACES))
    np.testing.assert_array_equal(output[..., H // 3 :], X[..., H // 3 :])
    grown = np.linalg.norm(output[..., : H // 3]) / np.linalg.norm(X[..., : H // 3])
    np.testing.assert_allclose(grown, 1 + 0.1 * math.log(4), rtol=1e-5)


def test_yarn_of_so_short_a_text_that_its_ramp_has_no_width():
    """Both ends of the ramp are pair 0, which alone keeps its angle."""
    plain = 10000.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(YaRN(2, length=4).frequencies(8, 10000), plain / [1, 2, 2, 2])


def test_long_rope_divides_each_pair_by_its_factor():
    scaling = LongRoPE(4, length=64, factors=FACTORS)
    expected = turned(X, scaling, amplitude=math.sqrt(1 + math.log(4) / math.log(64)))
    np.testing.assert_allclose(Rotary(scaling=scaling)(X, PLACES), expected, atol=1e-4)
    with pytest.raises(ValueError, match="`factors` must be 2 numbers"):
        Rotary(scaling=scaling)(X[..., :4], PLACES)


def test_decoding_with_a_cache_equals_the_whole_pass():
    position = Rotary(layout="half", fraction=1 / 3, scaling=YaRN(4.0, 64))
    layer = MultiHeadAttention(N, H, position=position, pattern="causal")
    check_pieces(layer, oracles.random(B, T, 6), (3, 4, T), T)


class Unfinished(RotaryScaling):
    pass


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: Rotary(layout="halves"), "`layout` must be one of 'interleaved', 'half'"),
        (lambda: Rotary(fraction=0), r"`fraction` must be in \(0, 1\].*fraction=0"),
        (lambda: Rotary(fraction=0.25)(X[..., :6]), r"components that turn.*fraction=0.25"),
        (lambda: Rotary(scaling="yarn"), r"`scaling` must be a `RotaryScaling`.*'yarn'"),
        (lambda: YaRN(0.5, 64), "`factor` must be a number of at least 1.*0.5"),
        (lambda: YaRN(2, 64, amplitude=0), "`amplitude` must be a number above 0"),
        (lambda: YaRN(2, 64, beta_slow=0), "`beta_slow` must be a number above 0"),
        (lambda: Llama3(2, 0), "`length`.*length=0"),
        (lambda: Llama3(2, 64, high=1), "`high` must be above `low`, 1.0. Received: high=1"),
        (lambda: Rotary(max_length=0), "`max_length` must be an integer"),
        (lambda: LongRoPE(2, 64, ["a"]), r"`factors\[0\]` must be a number"),
        (lambda: LongRoPE(2, 64, [1.0, 0.0]), "`factors` must be numbers above 0"),
    ],
)
def test_invalid_arguments_raise(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_scaling_without_frequencies_is_named():
    with pytest.raises(NotImplementedError, match="Unfinished must define `frequencies`"):
        Rotary(scaling=Unfinished(2))(X)
