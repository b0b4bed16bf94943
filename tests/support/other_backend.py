"""Programs on a backend that is not the one of these tests."""

import importlib.util
import json
import os

import pytest
from fork_server import ROOT, run_python

INSTALLED = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
needs_jax = pytest.mark.skipif("jax" not in INSTALLED, reason="JAX is not installed")


def start_on(backend, program, *arguments, **variables):
    """Run Python code to its end; on another backend than TensorFlow, without TensorFlow.

    Backends and JAX's configuration are read when Keras is imported: `variables` cannot set them.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return run_python("-c", program, *arguments, backend=backend, environment=environment)


def run_on(backend, program, *arguments, **variables):
    """Return the last line that a program prints, read as JSON."""
    done = start_on(backend, program, *arguments, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def lines_on_eight_devices(script, *arguments):
    """Return the lines of JSON that a script prints on eight simulated devices of JAX."""
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support"))),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    done = run_python(script, *arguments, backend="jax", environment={**os.environ, **variables})
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
