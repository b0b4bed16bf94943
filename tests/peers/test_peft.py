"""Adapters that are written for peft give its outputs; tests/convert/test_peft.py reads its own."""

import subprocess

import checkpoint_folders
import numpy as np
import pytest
from fork_server import ROOT
from peers import PYTHON, require

from keras_attn import layers
from keras_attn.convert import from_hugging_face, save_peft

PROGRAM = ROOT / "tests/convert/make_peft_goldens.py"
# Targets of `add_lora` by golden file.
TARGETS = {
    "bert": ["query", "key", "feed_forward/*", "head/dense"],
    "gpt2_scales": ["query", "value", "output"],
    "llama_biases": ["attention/*", "feed_forward/gate", "feed_forward/output"],
}
pytestmark = pytest.mark.slow


def run(*arguments):
    require("peft", "torch", "transformers")
    done = subprocess.run(
        [PYTHON, PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def converted(name, folder):
    config, weights, arrays = checkpoint_folders.load_golden(name)
    folder = checkpoint_folders.write_folder(folder, config, weights)
    return from_hugging_face(folder)[0], folder, arrays


@pytest.mark.parametrize("name", TARGETS)
def test_peft_gives_the_outputs_of_our_adapters(name, tmp_path):
    require("peft", "torch", "transformers")
    model, base, before = converted(name, tmp_path / "base")
    layers.add_lora(model, 2, TARGETS[name], alpha=3)
    random = np.random.RandomState(0)
    for weight in model.trainable_variables:
        weight.assign(0.25 * random.standard_normal(weight.shape))
    save_peft(model, tmp_path / "adapters", base)
    run("--read", base, tmp_path / "adapters", tmp_path / "outputs.npz")
    with np.load(tmp_path / "outputs.npz") as arrays:
        assert checkpoint_folders.difference(model, arrays) <= 2e-6
        assert np.abs(arrays["outputs"] - before["outputs"]).max() > 0.1
