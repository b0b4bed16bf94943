"""Cases of the comparison of checkpoints with transformers."""

import itertools

from recipes.benchmarks import checkpoint_cases
from recipes.benchmarks.checkpoint_families import Family


def test_a_covering_array_has_each_pair_of_values_that_is_not_excluded():
    factors = {"a": [1, 2, 3], "b": [None, "x"], "c": [True, False], "d": [{"e": 5}, {"e": 7}]}
    excluded = [{"a": 2, "b": "x"}, {"a": 3, "c": True, "d": {"e": 7}}]
    rows = checkpoint_cases.covering_array(factors, excluded)
    for a, b in itertools.combinations(factors, 2):
        missing = [
            (x, y)
            for x, y in itertools.product(factors[a], factors[b])
            if not any(row[a] == x and row[b] == y for row in rows)
        ]
        assert missing == ([(2, "x")] if (a, b) == ("a", "b") else [])
    assert not any(checkpoint_cases.has_any(row, excluded) for row in rows)
    assert len(rows) < 12


def test_a_case_has_the_options_of_its_size_and_a_refusal_stands_alone():
    family = Family(
        classes=("A", "B"),
        sizes=({"width": 5}, {"width": 7}, {"width": 11}),
        options={"half": (lambda size: size["width"] // 2, 1), "odd": (False, True)},
        refused=(("odd", {"odd": "no"}),),
    )
    *covered, refused = (x for x in checkpoint_cases.cases("ab", family) if not x.is_bare)
    assert {case.options["half"] for case in covered} == {1, 2, 3, 5}
    assert all(case.options["half"] in (1, case.options["width"] // 2) for case in covered)
    assert refused.options == {"width": 5, "half": 2, "odd": "no"} and refused.refused_by == "odd"
    assert len({case.key() for case in [*covered, refused]}) == len(covered) + 1


def test_a_bare_case_of_each_class_has_a_size_and_what_is_needed():
    family = Family(
        classes=("A", "B"),
        sizes=({"width": 5}, {"width": 7}),
        options={"odd": (False, True)},
        needed={"half": lambda size: size["width"] // 2},
    )
    made = list(checkpoint_cases.cases("ab", family))
    bare = [case for case in made if case.is_bare]
    expected = [("A", {"width": 5, "half": 2}), ("B", {"width": 7, "half": 3})]
    assert [(case.class_name, case.options) for case in bare] == expected
    assert len({case.key() for case in made}) == len(made)
    assert bare[0]._replace(is_bare=False).key() != bare[0].key()
