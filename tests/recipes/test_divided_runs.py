"""Recipes that divide their model among devices and processes, on JAX."""

import shutil
import zipfile

import numpy as np
import pytest
from other_backend import needs_jax
from recipe_processes import finished, started
from recipe_runs import card
from scripts import cluster

pytestmark = [needs_jax, pytest.mark.slow]

OPTIONS = [
    *("--model", "transformer_xl", "--num-layers", "1", "--num-heads", "4", "--hidden-dim", "8"),
    *("--intermediate-dim", "8", "--context", "11", "--batch-size", "4", "--dropout", "0.1"),
    *("--steps", "8", "--epochs", "2", "--checkpoint-steps", "3", "--warmup-steps", "2"),
]
TEXT = "".join(f"{i} and {i * i % 17} make {i + i * i % 17}\n" for i in range(150))


def train(out, text, *more, processes=1, devices=1, backend="jax"):
    """Train in a copy of a run's directory, and return what the processes print."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    configs = cluster(processes) if processes > 1 else [""]
    return finished(
        started(
            *("language_model", "--text", text, "--out", out, *OPTIONS, *more),
            backend=backend,
            XLA_FLAGS=flags,
            **({"TF_CONFIG": config} if config else {}),
        )
        for config in configs
    )


def history(out):
    rows = (out / "history.csv").read_text().splitlines()
    names = rows[0].split(",")
    return {
        name: np.array([float(row.split(",")[names.index(name)]) for row in rows[1:]])
        for name in ("loss", "val_loss")
    }


def test_a_run_divided_among_processes_ends_as_on_one_device(tmp_path):
    text, first = tmp_path / "text.txt", tmp_path / "first"
    text.write_text(TEXT)
    train(first, text, "--prepare", backend="tensorflow")
    places = {
        "alone": ((), {}),
        "tensor": (("--mesh", "model=4"), {"processes": 2, "devices": 2}),
        "both": (("--mesh", "data=2,model=2", "--shard-parameters"), {"devices": 4}),
    }
    for name, (mesh, where) in places.items():
        out = shutil.copytree(first, tmp_path / name)
        strategy = ("--strategy", "model_parallel", *mesh) if mesh else ()
        said = train(out, text, *strategy, **where)
        assert "Trained:" in said[0] and not any("Trained:" in other for other in said[1:])
        assert zipfile.is_zipfile(out / "model.keras")
        for metric, values in history(out).items():
            expected = history(tmp_path / "alone")[metric]
            np.testing.assert_allclose(values, expected, atol=1e-4, err_msg=f"{name} {metric}")
    train(tmp_path / "tensor", text, backend="tensorflow")
    assert card(tmp_path / "tensor")["steps"] == 8
    assert (tmp_path / "tensor" / "export" / "1" / "saved_model.pb").exists()


def test_a_mesh_that_does_not_fit_the_devices_ends_in_one_sentence(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    process = started(
        *("language_model", "--text", text, "--out", tmp_path / "out", *OPTIONS),
        *("--strategy", "model_parallel", "--mesh", "data=2,model=4"),
        backend="jax",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    said = process.communicate(timeout=200)[0]
    assert process.returncode == 2 and "devices of all processes, 2. Received: data=2" in said, said
    assert not (tmp_path / "out").exists()
