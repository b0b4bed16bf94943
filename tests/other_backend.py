"""Running Python on a backend that is not the one of these tests."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
needs_jax = pytest.mark.skipif("jax" not in INSTALLED, reason="JAX is not installed")

# Elsewhere TensorFlow need not be installed.
FORBID_TENSORFLOW = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Forbid())
"""


def start_on(backend, program, *arguments, **variables):
    """A Python program that has ended, on another backend than TensorFlow one without it."""
    forbid = "" if backend == "tensorflow" else FORBID_TENSORFLOW
    return subprocess.run(
        [sys.executable, "-c", forbid + program, *map(str, arguments)],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT), **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def run_on(backend, program, *arguments, **variables):
    """What a Python program prints last, read as JSON."""
    done = start_on(backend, program, *arguments, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
