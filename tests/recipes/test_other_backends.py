"""Trained on JAX, where TensorFlow need not be installed; tested and exported on TensorFlow."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    *("--preset", "transformer_tiny", "--num-layers", "1", "--tokenizer", "characters"),
    *("--epochs", "2", "--tokens-per-batch", "96", "--packing", "24", "--max-length", "24"),
    *("--beams", "1", "--source", "en", "--target", "xx"),
]

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("jax"), reason="JAX is not installed: pip install 'jax[cpu]'"
)


def run(backend, data, out, *options):
    return subprocess.run(
        [
            *(sys.executable, "-m", "recipes.translate", "--data-dir", str(data)),
            *("--out", str(out), *SMALL, *options),
        ],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_changes_its_backend(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for split, lines in (("train", 40), ("val", 7), ("test_small", 5)):
        words = ["".join(chr(97 + i * k % 7) for k in range(3 + i % 5)) for i in range(lines)]
        (data / f"{split}.en").write_text("\n".join(words))
        (data / f"{split}.xx").write_text("\n".join(word[::-1] for word in words))
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    refused = run("jax", data, parted)
    assert refused.returncode == 2 and "--prepare" in refused.stderr
    assert run("tensorflow", data, parted, "--prepare").returncode == 0
    trained = run("jax", data, parted)
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "KERAS_BACKEND=tensorflow" in trained.stdout
    assert not (parted / "card.json").exists()
    assert run("tensorflow", data, parted, "--dropout", "0.1").returncode == 2  # another run
    for out in (parted, whole):
        done = run("tensorflow", data, out)
        assert done.returncode == 0, done.stderr[-3000:]
    cards = [json.loads((out / "card.json").read_text()) for out in (parted, whole)]
    assert cards[0]["steps"] == cards[1]["steps"]
    # Other random numbers for weights and dropout, the same data: the losses are near each other.
    for ours, theirs in zip(*(card["history"] for card in cards), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.2)
    assert (parted / "export" / "1" / "saved_model.pb").exists()
