import sys

import pytest


@pytest.fixture(autouse=True)
def untouched_arguments(monkeypatch):
    """A recipe that runs in this process reads `sys.argv`, which tests set."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
