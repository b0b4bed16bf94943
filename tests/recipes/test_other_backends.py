"""Runs trained on JAX without TensorFlow, then tested and exported on TensorFlow."""

import json
from pathlib import Path

import pytest
from other_backend import needs_jax, start_on

ROOT = Path(__file__).resolve().parents[2]
TRANSLATE = [
    *("--preset", "transformer_tiny", "--num-layers", "1", "--tokenizer", "characters"),
    *("--epochs", "2", "--tokens-per-batch", "96", "--packing", "24", "--max-length", "24"),
    *("--beams", "1", "--source", "en", "--target", "xx"),
]
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


def test_a_run_changes_its_backend(tmp_path):
    def translate(backend, out, *more):
        return run(backend, "translate", "--data-dir", data, "--out", out, *TRANSLATE, *more)

    data = tmp_path / "data"
    data.mkdir()
    for split, lines in (("train", 40), ("val", 7), ("test_small", 5)):
        words = ["".join(chr(97 + i * k % 7) for k in range(3 + i % 5)) for i in range(lines)]
        (data / f"{split}.en").write_text("\n".join(words))
        (data / f"{split}.xx").write_text("\n".join(word[::-1] for word in words))
    out = tmp_path / "out"
    trained = translate("jax", out)
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "KERAS_BACKEND=tensorflow" in trained.stdout
    assert not (out / "card.json").exists()
    weights = (out / "model.keras").read_bytes()
    assert translate("tensorflow", out, "--dropout", "0.1").returncode == 2  # another run
    done = translate("tensorflow", out)
    assert done.returncode == 0, done.stderr[-3000:]
    card = json.loads((out / "card.json").read_text())
    assert len(card["history"]) == 2 and card["results"]["val"]["value"] >= 0
    assert (out / "model.keras").read_bytes() == weights  # nothing is trained again
    assert (out / "export" / "1" / "saved_model.pb").exists()


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
