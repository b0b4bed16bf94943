"""Checkpoints, averages and files of a model whose weights are divided among processes."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fork_server import run_python
from other_backend import needs_jax

from keras_attn.callbacks import average_weights
from recipes.common.machine import cluster_settings

pytestmark = [pytest.mark.slow, needs_jax]

SCRIPT = Path(__file__).resolve().parent / "divided.py"


def trained(directory, *alone, **variables):
    path = f"{SCRIPT.parents[1] / 'support'}{os.pathsep}{SCRIPT.parents[2]}"
    environment = {**os.environ, "XLA_FLAGS": "", **variables, "PYTHONPATH": path}
    done = run_python(SCRIPT, directory, *alone, backend="jax", environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def read(path):
    return list(np.load(path).values())


def test_a_divided_model_is_saved_whole_and_restored(tmp_path):
    together, alone = tmp_path / "together", tmp_path / "alone"
    with ThreadPoolExecutor() as threads:
        runs = [
            threads.submit(trained, together, TF_CONFIG=config) for config in cluster_settings(2)
        ]
        found = [run.result() for run in runs]
    *same, whole = trained(alone, "alone")
    assert whole == 1 and same == [[2, 0], True]
    for position, is_restored, cut in found:
        assert position == [2, 0] and is_restored and 0.5 < cut < 0.9
    expected = read(alone / "saved-0.npz")
    for process in range(2):
        for weights in (
            read(together / f"saved-{process}.npz"),
            average_weights([together / f"average/epoch-0001-shard-{process}-of-2.npz"]),
        ):
            for ours, theirs in zip(weights, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert not list(tmp_path.rglob("*.partial*"))
