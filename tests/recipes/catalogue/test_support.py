"""The catalogue's lines on causality, caches, exports and backends."""

import datetime

import pytest
from catalogue_support import NAMES, recorded, stale, statements, support_of, trains_on_jax
from each import check_each
from other_backend import needs_jax

from recipes.catalogue.entries import OUTSIDE_MODELS, sections

RECORDED = recorded()
# Another tenth of the values each day.
TODAY = NAMES[datetime.date.today().toordinal() % 10 :: 10]


def test_results_are_of_values_of_the_catalogue():
    named = {e.name for _, _, entries in sections() for e in entries}
    assert set(RECORDED) == set(NAMES) == {n for n in named if not n.startswith(OUTSIDE_MODELS)}


def test_results_are_of_the_code_and_the_libraries_as_they_are():
    command = "PYTHONPATH=. python tests/support/catalogue_support.py --stale"
    assert stale() == [], f"measure these again: {command}"


def test_comments_docstrings_and_imports_do_not_count_as_code():
    plain = "def f(x):\n    return x\n"
    commented = 'import a\n\n\ndef f(x):  # b\n    """Return x."""\n    return x\n'
    assert statements(commented) == statements(plain) != statements("def f(x):\n    return -x\n")


@pytest.mark.slow
def test_a_tenth_of_the_values_supports_what_is_recorded():
    def check(name):
        assert support_of(name) == {k: v for k, v in RECORDED[name].items() if k != "jax"}

    check_each(check, TODAY)


@pytest.mark.slow
@needs_jax
def test_a_tenth_of_the_values_trains_on_jax_as_recorded():
    assert trains_on_jax(*TODAY) == {name: RECORDED[name]["jax"] for name in TODAY}
