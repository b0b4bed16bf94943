"""Runs trained on JAX without TensorFlow, then tested and exported on TensorFlow."""

from pathlib import Path

import pytest
from other_backend import needs_jax, start_on

ROOT = Path(__file__).resolve().parents[2]
CONTROL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "8", "--intermediate-dim", "7"),
    *("--num-envs", "2", "--rollout", "13", "--memory", "17", "--steps", "100", "--epochs", "2"),
    *("--passes", "2", "--episodes", "3", "--seeds", "1", "--models", "gtrxl"),
]

RECIPE = "import runpy; runpy.run_module('recipes.{}', run_name='__main__', alter_sys=True)"

pytestmark = [needs_jax, pytest.mark.slow]


def run(backend, recipe, *options):
    return start_on(backend, RECIPE.format(recipe), *options)


def test_every_recipe_is_imported_on_jax_without_tensorflow():
    names = sorted(path.parent.name for path in ROOT.glob("recipes/*/training.py"))
    assert "translate" in names
    program = "".join(f"import recipes.{name}.training\n" for name in names)
    done = start_on("jax", program)
    assert done.returncode == 0, done.stderr[-3000:]


def test_agents_change_their_backend(tmp_path):
    trained = run("jax", "control", "--out", tmp_path, *CONTROL)
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "KERAS_BACKEND=tensorflow" in trained.stdout
    curve = (tmp_path / "gtrxl-0" / "history.csv").read_text()
    assert not (tmp_path / "gtrxl-0" / "card.json").exists()
    done = run("tensorflow", "control", "--out", tmp_path, *CONTROL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "gtrxl-0" / "history.csv").read_text() == curve  # nothing is trained again
    assert "| `gtrxl` |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "gtrxl-0" / "export" / "1" / "saved_model.pb").exists()
