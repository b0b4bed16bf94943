"""Recipes that divide their model among devices and processes, on JAX."""

import shutil
import zipfile

import keras
import numpy as np
import pytest
from other_backend import needs_jax
from recipe_processes import finished, started
from recipe_runs import card

from keras_attn.callbacks.training_state import read_arrays
from recipes.common.machine import cluster_settings

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
    configs = cluster_settings(processes) if processes > 1 else [""]
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


def test_the_best_epoch_of_weights_divided_among_processes_is_kept(tmp_path):
    """Labels without a reason, so that the validation loss soon rises."""
    words = ["".join(chr(97 + i * k % 7) for k in range(3 + i % 5)) for i in range(53)]
    labels = np.random.default_rng(0).integers(0, 2, len(words))
    rows = [f"{word},{('odd', 'even')[label]}" for word, label in zip(words, labels, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    size = "--num-layers 1 --num-heads 2 --hidden-dim 8 --intermediate-dim 12 --dropout 0"
    how = "--max-length 13 --vocabulary-size 40 --epochs 6 --batch-size 6 --learning-rate 0.1"
    options = "--train", tmp_path / "rows.csv", *size.split(), *how.split(), "--patience", "9"
    weights = {}
    for name, mesh in (("alone", ()), ("divided", ("--mesh", "model=2"))):
        out, strategy = tmp_path / name, ("--strategy", "model_parallel", *mesh) if mesh else ()
        configs = cluster_settings(2) if mesh else [None]
        finished(
            started(
                *("fine_tune", *options, "--out", out, *strategy),
                backend="jax",
                **({"TF_CONFIG": config} if config else {}),
            )
            for config in configs
        )
        losses = history(out)["val_loss"]
        assert losses.argmin() < len(losses) - 1, "another epoch than the last one must be kept"
        model = keras.saving.load_model(out / "model.keras")
        for own, best in zip(model.get_weights(), read_arrays(out / "best.npz")[0], strict=True):
            np.testing.assert_array_equal(own, best)
        # Adam makes steps of the rounding of a key bias, whose gradient is 0.
        kept = [v for v in model.weights if not v.path.endswith("key_bias")]
        weights[name] = [np.asarray(v) for v in kept]
    for own, expected in zip(weights["divided"], weights["alone"], strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-2)  # an epoch moves some by 0.3
