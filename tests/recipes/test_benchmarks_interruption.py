"""A run that ends by itself is no killed run."""

import sys
import types

import pytest

from recipes.benchmarks.interruption import Run


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
