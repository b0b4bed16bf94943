"""A run resumes with another number of processes, on another mesh, as if nothing had happened."""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fork_server import ForkedPython
from other_backend import needs_jax

from recipes.common.machine import cluster_settings

pytestmark = [pytest.mark.slow, needs_jax]

SCRIPT = Path(__file__).resolve().parent / "sharded.py"


def start(directory, mesh, devices, way=(), **variables):
    path = f"{SCRIPT.parents[1] / 'support'}{os.pathsep}{SCRIPT.parents[2]}"
    flags = f"--xla_force_host_platform_device_count={devices}"
    return ForkedPython(
        *(SCRIPT, directory, *mesh.split("x"), *map(str, way)),
        backend="jax",
        environment={**os.environ, "PYTHONPATH": path, "XLA_FLAGS": flags, **variables},
        stderr=subprocess.STDOUT,
    )


def trained(directory, mesh, processes, devices, *way):
    """Train with so many processes; return the position at which they resumed.

    The last process ends itself in a `way`, and then this ends the others.
    """
    configs = (
        [{"TF_CONFIG": config} for config in cluster_settings(processes)] if processes > 1 else [{}]
    )
    started = [
        start(directory, mesh, devices, way if index == processes - 1 else (), **config)
        for index, config in enumerate(configs)
    ]
    said = [started[-1].communicate(timeout=300)[0]]
    for process in started[:-1]:
        if way:
            process.kill()
        said.append(process.communicate(timeout=300)[0])
    codes = {process.returncode for process in started}
    assert started[-1].returncode == (-9 if way else 0) and (way or codes == {0}), said
    (position,) = set(re.findall(r"^\[\d, \d\]$", "\n".join(said), re.M))
    return json.loads(position)


def end(directory):
    with np.load(directory / "end.npz") as file:
        return list(file.values())


def names(directory, number):
    return sorted(p.name for p in (directory / "checkpoint").glob(f"checkpoint-{number:08d}*"))


def test_a_run_that_changes_its_processes_and_its_mesh_ends_as_one_device_does(tmp_path):
    """One device, killed; then two processes, one killed in the middle of writing; then eight
    devices of one process, which divide the weights by rows too."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert trained(straight, "1x1", 1, 1) == [0, 0]
    assert trained(killed, "1x1", 1, 1, "steps", 3) == [0, 0]
    assert trained(killed, "2x4", 2, 4, "half", 3) == [0, 3]
    half = [path.name for path in (killed / "checkpoint").glob("*.partial.npz")]
    assert half == ["checkpoint-00000005-shard-1-of-2.partial.npz"]
    assert len(names(killed, 4)) == 3  # two shards and their manifest
    assert trained(killed, "8zx1", 1, 8) == [1, 0]
    kept = {path.name for path in (killed / "average").glob("*.npz")}
    shards = {f"epoch-0000-shard-{process}-of-2.npz" for process in range(2)}
    assert kept == {*shards, "epoch-0001.npz", "epoch-0002.npz"}
    for resumed, expected in zip(end(killed), end(straight), strict=True):
        np.testing.assert_allclose(resumed, expected, atol=1e-6)
    assert not list(killed.rglob("*.partial*"))
