import numpy as np
import pytest
import tensorflow as tf

from keras_attn.ops.checks import (
    check_integers,
    check_numbers,
    check_rates,
    check_shape,
    check_sizes,
)


@pytest.mark.parametrize("size", [1, 7, np.int32(3)])
def test_sizes_that_fit(size):
    check_sizes(width=size)


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", None, True])
def test_sizes_that_do_not(size):
    with pytest.raises(ValueError, match=f"`width` must be an integer.*width={size!r}"):
        check_sizes(height=1, width=size)


@pytest.mark.parametrize("rate", [0, 0.0, 0.5, np.float32(0.999)])
def test_rates_that_fit(rate):
    check_rates(dropout=rate)


@pytest.mark.parametrize("rate", [1, 1.5, -0.1, float("nan"), "0.1", None])
def test_rates_that_do_not(rate):
    with pytest.raises(ValueError, match=r"`dropout` must be in \[0, 1\)"):
        check_rates(dropout=rate)


@pytest.mark.parametrize("number", ["2", None, float("nan"), -0.5, True])
def test_numbers(number):
    check_numbers(0, here=0, there=np.float32(2.5))
    check_numbers(bias=-3)
    with pytest.raises(ValueError, match=f"`bias` must be a number of at least 0.*={number!r}"):
        check_numbers(0, here=1, bias=number)
    if number != -0.5:
        with pytest.raises(ValueError, match="`bias` must be a number. Received"):
            check_numbers(bias=number)


def test_integers():
    check_integers(np.zeros(2, "uint8"), "ids")
    with pytest.raises(ValueError, match="`ids` must be integers.*dtype=float32"):
        check_integers(np.zeros(2, "float32"), "ids")


@pytest.mark.parametrize(
    "shape, expected, broadcast, fits",
    [
        ((2, 3), [(2, 3)], False, True),
        ((2, 3), [(None, 3)], False, True),
        ((2, 3), [(2, 4)], False, False),
        ((2, 3), [(2,), (2, 3)], False, True),
        ((2, 3), [(2, 3, 1)], False, False),
        ((1, 3), [(2, 3)], False, False),
        ((1, 3), [(2, 3)], True, True),
        ((3, 3), [(2, 3)], True, False),
        ((2, 3), [(1, 3)], True, False),
        ((), [()], False, True),
    ],
)
def test_shapes(shape, expected, broadcast, fits):
    if fits:
        check_shape(np.zeros(shape), "x", *expected, broadcast=broadcast)
    else:
        with pytest.raises(ValueError, match="`x` must have shape .* Received: shape="):
            check_shape(np.zeros(shape), "x", *expected, broadcast=broadcast)


def test_unknown_sizes_fit_any():
    seen = []

    @tf.function(input_signature=[tf.TensorSpec((None, 3))])
    def trace(x):
        check_shape(x, "x", (5, 3))
        with pytest.raises(ValueError, match=r"\(None, 3\)"):
            check_shape(x, "x", (5, 4))
        seen.append(x.shape)
        return x

    trace(tf.zeros((2, 3)))
    assert seen
