"""A run that ends by itself is no killed run."""

import sys
import types

import numpy as np
import pytest

from recipes.benchmarks.interruption import Run, differences


def test_a_run_that_ends_by_itself_is_reported_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "checkpoint").mkdir()
    monkeypatch.setattr(sys, "executable", "ls")  # which refuses the options
    run = Run(
        tmp_path, types.SimpleNamespace(recipe="translate", options="", processes=1, devices=1)
    )
    with pytest.raises(RuntimeError, match=r"^The run ended before it was killed.\nls: "):
        run.kill(0.0, in_a_write=True)
    with pytest.raises(RuntimeError, match="^ls: "):
        run.finish()


@pytest.mark.parametrize(
    ("state", "losses", "met"),
    [
        ([np.float32([1, -0.0]), np.int64(7)], [2.5, 1.5], [True, True]),
        ([np.float32([1, 0.0]), np.int64(7)], [2.5, 1.5], [False, True]),
        ([np.float32([1, -0.0]), np.int32(7)], [2.5, 1.6], [False, False]),
        ([np.float32([1, np.nan]), np.int64(7)], [2.5, np.nan], [False, False]),
    ],
)
def test_runs_are_the_same_byte_for_byte(state, losses, met):
    def run(state, losses):
        return types.SimpleNamespace(state=lambda: state, losses=lambda: losses)

    calm = run([np.float32([1, -0.0]), np.int64(7)], [2.5, 1.5])
    assert [difference["met"] for difference in differences(calm, run(state, losses))] == met
    broken = run([np.float32([np.nan])], [np.nan])
    assert [difference["met"] for difference in differences(broken, broken)] == [False, False]
