"""Longformers with global tokens have the outputs and gradients of transformers."""

import subprocess

import checkpoint_folders
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from fork_server import ROOT
from peers import PYTHON, require

from keras_attn.convert import from_hugging_face, to_hugging_face

pytestmark = pytest.mark.slow
NAMES = ("longformer", "longformer_features", "longformer_classifier")
COUNTS = 0, 1, 2  # of global tokens, all of one model
CASES = [("longformer_features", 1), ("longformer_classifier", 2), *((NAMES[0], n) for n in COUNTS)]
TOLERANCE = 2e-6  # of the largest output
STEP_TOLERANCE = 2e-5  # of the largest change of a tensor, or of its largest number
FILE = "model.safetensors"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each case, which transformers has loaded."""
    require("torch", "transformers")
    out, paths = tmp_path_factory.mktemp("globals"), {}
    for name, count in CASES:
        config, weights, _ = checkpoint_folders.load_golden(name)
        start = checkpoint_folders.write_folder(out / f"start {name}", config, weights)
        paths[name, count] = out / f"{name} {count}"
        to_hugging_face(from_hugging_face(start)[0], paths[name, count])
    command = [PYTHON, ROOT / "tests/peers/longformer_globals.py", *paths.values()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return paths


def golden(folder):
    with np.load(folder / "keras_attn_golden.npz") as file:
        return dict(file)


@pytest.mark.parametrize("name, count", CASES)
def test_outputs_and_a_step_of_descent_are_those_of_transformers(name, count, folders, tmp_path):
    folder = folders[name, count]
    model, _ = from_hugging_face(folder.parent / f"start {name}", num_global=count)
    arrays = golden(folder)
    assert checkpoint_folders.difference(model, arrays) <= TOLERANCE
    inputs = {k.removeprefix("input_"): x for k, x in arrays.items() if k.startswith("input_")}
    with tf.GradientTape() as tape:
        outputs = model(inputs)
        factors = np.random.RandomState(1).standard_normal(outputs.shape).astype("float32")
        loss = tf.reduce_sum(outputs * (factors * arrays["mask"][..., None]))
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        if gradient is not None:  # as that of the second projections without global tokens
            variable.assign(variable - tf.convert_to_tensor(gradient))
    to_hugging_face(model, tmp_path / "step")
    files = folder, folder / "step", tmp_path / "step"
    before, theirs, ours = (safetensors.numpy.load_file(x / FILE) for x in files)
    # Without global tokens nothing reads the second projections; with them a classifier reads only
    # their row of the last layer.
    unread = "_global." if count == 0 else "encoder.layer.1.attention.self."
    for key, start in before.items():
        change = np.abs(theirs[key] - start).max()
        error = np.abs(ours[key] - theirs[key]).max()
        assert error <= STEP_TOLERANCE * max(change, np.abs(start).max()), key
        assert change > 0 or unread in key, key


def test_another_number_of_global_tokens_exceeds_the_tolerance(folders):
    name = NAMES[0]
    model, _ = from_hugging_face(folders[name, 2].parent / f"start {name}", num_global=1)
    assert checkpoint_folders.difference(model, golden(folders[name, 1])) <= TOLERANCE
    for count in (0, 2):
        assert checkpoint_folders.difference(model, golden(folders[name, count])) > 20 * TOLERANCE
