"""After twenty steps several replicas have the weights that one device has, whatever each of them
had of real tokens: two logical devices, two processes, and two devices of JAX."""

import os
from pathlib import Path

import numpy as np
import pytest
from fork_server import ForkedPython
from other_backend import needs_jax

from recipes.common.machine import cluster_settings

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parent / "replicas.py"
# A model with a loss of its own, by an optimizer with a global norm.
HALTING = "act"
# A memory, with a loss of weights alone.
SPANS = "adaptive_span_transformer"
CASES = (HALTING, SPANS, "auxiliary")


def started(directory, cases, *kinds, backend="tensorflow", **variables):
    directory.mkdir(parents=True, exist_ok=True)
    path = f"{SCRIPT.parents[1] / 'support'}{os.pathsep}{SCRIPT.parents[2]}"
    environment = {**os.environ, **variables, "PYTHONPATH": path}
    with open(directory / "errors", "w", encoding="utf-8") as errors:
        return ForkedPython(
            *(SCRIPT, directory, ",".join(cases), *kinds),
            backend=backend,
            environment=environment,
            stdout=errors,
            stderr=errors,
        )


def finish(processes):
    for directory, process in processes.items():
        assert process.wait() == 0, (directory / "errors").read_text()[-3000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    processes = {folder / "here": started(folder / "here", CASES, "none", "mirrored")}
    for index, config in enumerate(cluster_settings(2)):
        at = folder / f"worker{index}"
        processes[at] = started(at, [HALTING], "multi_worker", TF_CONFIG=config)
    finish(processes)
    return {
        "none": [np.load(folder / "here" / "none.npz")],
        "mirrored": [np.load(folder / "here" / "mirrored.npz")],
        "multi_worker": [np.load(folder / f"worker{i}" / "multi_worker.npz") for i in range(2)],
    }


def check_equal(alone, together, case):
    """The same weights, and numbers in every epoch."""
    assert together["replicas"] == 2 and alone["replicas"] == 1
    assert np.abs(alone[f"{case}/after"] - alone[f"{case}/before"]).max() > 0.1
    assert np.abs(alone[f"{case}/after"] - together[f"{case}/after"]).max() < 2e-6
    names = [name for name in alone.files if name.startswith(case)]
    numbers = [name for name in names if not name.endswith(("before", "after"))]
    assert {f"{case}/loss", f"{case}/perplexity"} <= {*numbers}
    for name in numbers:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_two_devices_train_as_one(results, case):
    check_equal(*results["none"], *results["mirrored"], case)
    if case == "auxiliary":
        assert results["mirrored"][0][f"{case}/progress"] == 1.0


def test_the_loss_of_unequal_parts_is_that_of_one_device(results):
    """Keras's data has a last batch of one row, and layers of the model add losses."""
    (alone,), (together,) = results["none"], results["mirrored"]
    np.testing.assert_allclose(together["odd"], alone["odd"], rtol=1e-5)


def test_each_replica_drops_other_units(results):
    """In every step: attention weights, units in chunks and in recomputed blocks, whole blocks."""
    (together,) = results["mirrored"]
    assert together["distances"].shape == (8,) and together["distances"].min() > 1e-3


def test_two_processes_train_as_one(results):
    first, second = results["multi_worker"]
    check_equal(*results["none"], first, HALTING)
    assert np.array_equal(first[f"{HALTING}/after"], second[f"{HALTING}/after"])


def test_replicas_divide_the_rows_of_each_batch(results):
    """None twice and none lost, in the order of the batch; here a batch is two parts of rows."""
    (alone,), (mirrored,) = ([f["rows"] for f in results[k]] for k in ("none", "mirrored"))
    workers = [worker["rows"] for worker in results["multi_worker"]]
    assert np.array_equal(mirrored, alone)
    assert all(len(rows) < len(alone) for rows in workers)
    together = [rows[rows[:, 0] == batch] for batch in range(alone[-1, 0] + 1) for rows in workers]
    assert np.array_equal(np.concatenate(together), alone)


# Two processes of JAX train as one in tests/recipes/test_multi_worker.py.
@needs_jax
def test_jax_trains_on_two_devices_as_on_one(tmp_path):
    devices = "--xla_force_host_platform_device_count=2"
    kinds = ("none", "mirrored")
    finish({tmp_path: started(tmp_path, [SPANS], *kinds, backend="jax", XLA_FLAGS=devices)})
    check_equal(*(np.load(tmp_path / f"{kind}.npz") for kind in kinds), SPANS)
