"""The two figures of a contender on the card of decoding speed."""

import pytest

from recipes.benchmarks.decoding import COLUMNS, fixed_and_steps, with_few_tokens
from recipes.benchmarks.harness import Contender


def test_fixed_cost_and_steps_are_the_line_through_two_lengths():
    contenders = with_few_tokens([Contender("one", "m:f", {"new_tokens": 64, "beams": 3})])
    assert [each.options["new_tokens"] for each in contenders] == [64, 8]
    assert [each.options["beams"] for each in contenders] == [3, 3]

    def row(contender):
        return {
            "name": contender.name,
            "cpu_seconds": 0.0031 + 0.00017 * contender.options["new_tokens"],
        }

    alone = {"name": "alone", "cpu_seconds": 1.0}
    (one, other) = fixed_and_steps([row(contenders[0]), row(contenders[1]), alone])
    assert one["fixed_seconds"] == pytest.approx(0.0031)
    assert one["step_seconds"] == pytest.approx(0.00017)
    assert [text(one) for text in COLUMNS.values()] == ["3.1", "170.0"]
    assert [text(other) for text in COLUMNS.values()] == ["-", "-"]
