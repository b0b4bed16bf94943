"""A model that is too large for one process trains in two."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fork_server import run_python
from other_backend import needs_jax
from scripts import cluster

pytestmark = [pytest.mark.slow, needs_jax]

SCRIPT = Path(__file__).resolve().parent / "limited_memory.py"
# Weights and Adam's moments take 1,222 MB, gradients 407 MB, and a process without a model 700 MB.
LIMIT = 2800


def trained(processes, **variables):
    path = f"{SCRIPT.parents[1] / 'support'}{os.pathsep}{SCRIPT.parents[2]}"
    environment = {**os.environ, "XLA_FLAGS": "", **variables, "PYTHONPATH": path}
    return run_python(SCRIPT, LIMIT, processes, backend="jax", environment=environment)


def test_two_processes_train_a_model_that_exceeds_the_memory_of_one():
    alone = trained(1)
    assert alone.returncode != 0 and "Out of memory" in alone.stderr + alone.stdout
    with ThreadPoolExecutor() as threads:
        runs = [threads.submit(trained, 2, TF_CONFIG=config) for config in cluster(2)]
        for run in runs:
            done = run.result()
            assert done.returncode == 0, done.stderr[-3000:]
            assert done.stdout.split()[-1] == "True"
