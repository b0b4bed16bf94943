import keras
import numpy as np
import pytest
from marks import slow_but

from recipes.benchmarks import values
from recipes.benchmarks.contenders import layers


@pytest.mark.slow
def test_every_expert_at_each_position_is_the_same_function():
    (expression,) = values.EXPERTS
    options = {"expression": expression, "length": 13, "width": 32}
    outputs = []
    for contender in (layers.step, layers.all_experts):
        keras.utils.set_random_seed(3)
        outputs.append(contender(**options).call())
    np.testing.assert_allclose(*outputs, atol=1e-5)


@pytest.mark.parametrize("name", slow_but(["norm"], values.AXES))
def test_every_value_has_a_layer(name):
    axis = values.AXES[name]
    for value in (axis.plain, *axis.values):
        options = values.contender(axis, value, length=16, backward=True).options
        layers.build(options["expression"], options["length"], options["width"])


def test_the_bound_of_a_value_holds_for_a_step_of_the_asked_length():
    axis = values.Axis("{}", "a", {"b": 1.5}, asked_at=2048)
    rows = [{"name": "a", "seconds": [1.0, 3.0]}, {"name": "b", "seconds": [2.0, 4.0]}]
    for length, backward in ((2048, True), (2048, False), (16384, True)):
        (comparison,) = values.comparisons(axis, rows, length, backward)
        assert comparison["value"] == pytest.approx((2 + 4 / 3) / 2)
        assert comparison["met"] is (False if (length, backward) == (2048, True) else None)


def test_the_table_of_costs_leaves_out_missing_measurements():
    axis = values.Axis("{}", "a", {"b | d": None, "c": None})
    costs = {"forward": {"b | d": 1.234, "c": 2.0}, "step": {"c": 3.0}}
    table = values.cost_table(axis, costs)
    assert table[0] == "| beside `a` | forward | step |"
    assert table[2:] == [r"| `b \| d` | 1.23 |  |", "| `c` | 2.00 | 3.00 |"]
