"""The number of files, and of switches between them, that one call of attention passes through."""

import pytest
from marks import slow_but

from recipes.benchmarks import reading

MOST = {
    "dense": (6, 19),
    "causal": (8, 22),
    "Local(64), 1,024 positions": (9, 40),
    "LSH(64), 1,024 positions": (11, 70),
    "a cached step": (8, 38),
}


@pytest.mark.parametrize("name", slow_but(["a cached step"], reading.CALLS))
def test_a_call_stays_within_few_files(name):
    """Counted in an eager call; lower the numbers when a change reaches lower ones."""
    figures, files = reading.call_figures(name)
    most_files, most_switches = MOST[name]
    assert figures["files"] <= most_files, sorted(set(files))
    assert figures["switches"] <= most_switches
    assert figures["files"] > 3  # the hook has seen the call
