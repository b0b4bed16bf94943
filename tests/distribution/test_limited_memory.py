"""A model that is too large for one process trains in two."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fork_server import run_python
from other_backend import needs_jax

from recipes.common.machine import cluster_settings

pytestmark = [pytest.mark.slow, needs_jax]

SCRIPT = Path(__file__).resolve().parent / "limited_memory.py"
# MB. Weights and Adam's moments take 612, gradients 204, a step copies of some.
LIMIT = 900


def trained(processes, **variables):
    path = f"{SCRIPT.parents[1] / 'support'}{os.pathsep}{SCRIPT.parents[2]}"
    environment = {**os.environ, "XLA_FLAGS": "", **variables, "PYTHONPATH": path}
    return run_python(SCRIPT, LIMIT, processes, backend="jax", environment=environment)


def test_two_processes_train_a_model_that_exceeds_the_memory_of_one():
    alone = trained(1)
    assert alone.returncode != 0
    # Allocations that fail in several threads at once end it by a signal, with or without words.
    words = "bad_alloc", "Out of memory", "Unable to allocate", "can't start new thread"
    assert alone.returncode < 0 or any(word in alone.stderr for word in words), alone.stderr[-3000:]
    with ThreadPoolExecutor() as threads:
        runs = [threads.submit(trained, 2, TF_CONFIG=config) for config in cluster_settings(2)]
        for run in runs:
            done = run.result()
            assert done.returncode == 0, done.stderr[-3000:]
            assert done.stdout.split()[-1] == "True"
