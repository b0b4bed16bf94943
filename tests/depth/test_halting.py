"""The halting arithmetic against scalars, its golden vectors, and its gradient."""

import halting as scalar
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_attn.depth import halting
from keras_attn.testing.numerics import compute_gradients

GRAVES = {}
TENSOR2TENSOR = {"tensor2tensor": True}


def run(probabilities, max_steps, epsilon, **variant):
    """Return weights (M, units), N and R of units with probabilities (M, units)."""
    probabilities = ops.convert_to_tensor(probabilities)
    state, weights = halting.start(ops.ones_like(probabilities[0])), []
    for n in range(max_steps):
        state, weight = halting.advance(
            state, probabilities[n], n == max_steps - 1, epsilon, **variant
        )
        weights.append(weight)
    return ops.stack(weights), state.steps, state.remainder


@pytest.mark.parametrize(
    "probabilities, variant, weights, steps, remainder",
    [
        ((0.1, 0.3, 0.5, 0.4), GRAVES, (0.1, 0.3, 0.5, 0.1), 4, 0.1),
        ((0.995, 0.5), GRAVES, (1, 0), 1, 1),
        ((0.1, 0.1), GRAVES, (0.1, 0.9), 2, 0.9),
        ((0.99, 0.5), GRAVES, (1, 0), 1, 1),
        ((0.1, 0.1), TENSOR2TENSOR, (0.1, 0.1), 2, 0),
        ((0.1, 0.3, 0.5, 0.4), TENSOR2TENSOR, (0.1, 0.3, 0.5, 0.1), 4, 0.1),
        ((0.99, 0.5, 0.5), TENSOR2TENSOR, (0.99, 0.01, 0), 2, 0.01),
    ],
)
def test_outputs_equal_recorded_vectors(probabilities, variant, weights, steps, remainder):
    column = np.array(probabilities)[:, None]
    output = run(column, len(probabilities), 0.01, **variant)
    for value, expected in zip(output, (np.array(weights)[:, None], steps, remainder), strict=True):
        np.testing.assert_allclose(value, np.broadcast_to(expected, value.shape), atol=1e-12)


@settings(max_examples=8, deadline=None)
@given(data=st.data(), max_steps=st.integers(1, 8), epsilon=st.sampled_from([0.0, 0.01, 0.3, 1.0]))
@pytest.mark.parametrize("name, variant", [("graves", GRAVES), ("tensor2tensor", TENSOR2TENSOR)])
def test_output_equals_the_formula(name, variant, data, max_steps, epsilon):
    units = 5
    unit = st.lists(st.floats(0.001, 1.0), min_size=max_steps, max_size=max_steps)
    probabilities = np.array(data.draw(st.lists(unit, min_size=units, max_size=units))).T
    weights, steps, remainder = map(np.asarray, run(probabilities, max_steps, epsilon, **variant))
    for i in range(units):
        expected = getattr(scalar, name)(probabilities[:, i], max_steps, epsilon)
        assert steps[i] == expected[1]
        np.testing.assert_allclose(remainder[i], expected[2], atol=1e-12)
        np.testing.assert_allclose(weights[: len(expected[0]), i], expected[0], atol=1e-12)
        assert not weights[len(expected[0]) :, i].any()
    if variant is GRAVES:
        np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-12)


def test_idle_units_take_no_step():
    state = halting.start(ops.array([1.0, 0.0]))
    for n in range(3):
        state, weight = halting.advance(state, ops.array([0.2, 0.2]), n == 2, 0.01)
        assert float(weight[1]) == 0
    np.testing.assert_array_equal(state.steps, [3, 0])
    np.testing.assert_array_equal(state.remainder[1], 0)


def test_gradient_in_closed_form():
    """d(N + R)/dh_n = -1 before N, else 0; dp_n/dh_n = 1 before N, dp_N/dh_n = -1, else 0."""
    probabilities = np.array([0.1, 0.3, 0.5, 0.4, 0.7])[:, None]
    (slope,) = compute_gradients(lambda h: ops.sum(sum(run(h, 5, 0.01)[1:])), [probabilities])
    np.testing.assert_array_equal(slope[:, 0], [-1, -1, -1, 0, 0])
    expected = np.zeros((5, 5))
    expected[[0, 1, 2], [0, 1, 2]], expected[3, :3] = 1, -1
    for n in range(5):
        (slope,) = compute_gradients(lambda h, n=n: ops.sum(run(h, 5, 0.01)[0][n]), [probabilities])
        np.testing.assert_array_equal(slope[:, 0], expected[n])


@pytest.mark.parametrize("policy", ["float16", "mixed_bfloat16"])
def test_the_unit_is_float32_at_least(policy):
    """A hundred times 0.01 is 1, but not in half precision."""
    unit = halting.halting_unit(np.log(1 / 99), policy.removeprefix("mixed_"))
    unit.build((None, 3))
    unit.kernel.assign(ops.zeros((3, 1)))
    probability = unit(ops.zeros((1, 3), policy.removeprefix("mixed_")))[:, 0]
    state = halting.start(ops.ones_like(probability))
    for _ in range(120):
        state, _ = halting.advance(state, probability, False, 0.005)
    assert int(state.steps[0]) == 100


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"epsilon": -0.1}, "`epsilon` must be a number of at least 0.*epsilon=-0.1"),
        ({"epsilon": float("nan")}, "`epsilon`.*nan"),
        ({"ponder_loss": None}, "`ponder_loss`.*ponder_loss=None"),
        ({"halting_bias": "1"}, "`halting_bias` must be a number.*'1'"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    fitting = {"epsilon": 0, "ponder_loss": 1.5, "halting_bias": -3}
    halting.check_halting(**fitting)
    with pytest.raises(ValueError, match=message):
        halting.check_halting(**{**fitting, **arguments})
