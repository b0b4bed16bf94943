"""The tests of this folder run on torch alone; `python tests/torch_backend/run.py` runs them.

The folder is not called `torch`: the folder above it is searched for imports.
"""

import importlib.util
import os

import pytest

_HAS_TORCH = importlib.util.find_spec("torch") is not None
_IS_BACKEND = os.environ.get("KERAS_BACKEND") == "torch"
_REASON = (
    "torch is not installed: pip install 'keras_attn[torch]'"
    if not _HAS_TORCH
    else "KERAS_BACKEND is not torch: python tests/torch_backend/run.py"
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "torch_backend" and not (_HAS_TORCH and _IS_BACKEND):
            item.add_marker(pytest.mark.skip(reason=_REASON))
