"""Models that several processes hold together end with the weights of one device."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fork_server import run_python
from other_backend import needs_jax

from recipes.common.machine import cluster_settings

pytestmark = [pytest.mark.slow, needs_jax]

SCRIPT = Path(__file__).resolve().parent / "divided_processes.py"
NAMES = "gpt", "transformer", "transformer_xl"


def trained(directory, *arguments, devices=1, **variables):
    path = f"{SCRIPT.parents[1] / 'support'}{os.pathsep}{SCRIPT.parents[2]}"
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, **variables, "PYTHONPATH": path}
    directory.mkdir(exist_ok=True)
    mesh, options = arguments[:3], arguments[3:]
    done = run_python(SCRIPT, *mesh, directory, *options, backend="jax", environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    trained(directory, 1, 1, False, "alone")
    return directory


def test_processes_that_hold_a_model_together_train_it_as_one_device(tmp_path, alone):
    """One replica spans both processes."""
    variables = [{"TF_CONFIG": config} for config in cluster_settings(2)]
    with ThreadPoolExecutor() as threads:
        runs = [
            threads.submit(trained, tmp_path, 1, 8, False, devices=4, **more) for more in variables
        ]
        assert all(run.result().split()[-1] == "0" for run in runs), "all weights are divided"
    for name in NAMES:
        ours, expected = (np.load(path / f"{name}.npz") for path in (tmp_path, alone))
        for key in expected:
            np.testing.assert_allclose(ours[key], expected[key], atol=1e-6, err_msg=name)
