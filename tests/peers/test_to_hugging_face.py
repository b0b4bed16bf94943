"""Folders that `to_hugging_face` writes are models of transformers with equal outputs."""

import json
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
# RoBERTa becomes a BERT of other ids.
KINDS = (
    "bart*",
    "bert*",
    "distilbert*",
    "roberta*",
    "longformer*",
    "big_bird*",
    "gpt2*",
    "llama*",
    "marian*",
    "mistral*",
    "qwen*",
    "gemma*",
    "reformer*",
    "t5*",
    "vit*",
)
NAMES = sorted(path.stem for x in KINDS for path in checkpoint_folders.GOLDEN.glob(f"{x}.npz"))
TOLERANCE = 2e-6  # of the largest output
STEP_TOLERANCE = 2e-5  # of the largest change of a tensor, or of its largest number
# One folder of each family.
STEPS = [
    *("bert", "distilbert", "big_bird"),
    *("gpt2", "vit", "llama", "mistral", "qwen2", "qwen3"),
    *("gemma", "gemma2", "gemma3", "bart", "marian", "t5", "t5_gated"),
    *("gpt2_classifier", "llama_classifier", "mistral_classifier", "qwen2_classifier"),
    *("qwen3_classifier", "gemma_classifier", "gemma3_classifier"),
]
TABLE = "model.embed_tokens.weight"
UNREAD = {"bert.pooler.weight", "bert.pooler.bias"}
BIAS = "final_logits_bias"
# Of folders whose tokens include the id of padding, the table of tokens.
PADDING_ROWS = {
    "marian": "model.shared.weight",
    **{f"{x}_classifier": TABLE for x in ("llama", "qwen2", "qwen3", "gemma", "gemma3")},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The models by golden file, and the folder of their folders, loaded by transformers."""
    require("torch", "transformers")
    out, models = tmp_path_factory.mktemp("written"), {}
    for name in NAMES:
        config, weights, _ = checkpoint_folders.load_golden(name)
        folder = checkpoint_folders.write_folder(tmp_path_factory.mktemp(name), config, weights)
        models[name], _ = from_hugging_face(folder)
        to_hugging_face(models[name], out / name)
    folders = [str(folder) for folder in sorted(out.iterdir())]
    command = [PYTHON, ROOT / "tests/peers/load_checkpoints.py", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return models, out


def difference(model, folder):
    with np.load(folder / "keras_attn_golden.npz") as file:
        return checkpoint_folders.difference(model, dict(file))


@pytest.mark.parametrize("name", NAMES)
def test_transformers_loads_a_folder_with_equal_outputs(name, written):
    models, out = written
    report = json.loads((out / name / "report.json").read_text())
    assert not any(report.values()), report
    # With these weights transformers in float32 differs from itself in float64 by 3e-6 for Gemma.
    tolerance = 1e-5 if name.startswith("gemma") else TOLERANCE
    assert difference(models[name], out / name) <= tolerance


def frozen(name, model):
    """Weights of ours that the family does not have, and that would be trained."""
    if name == "distilbert":
        return [model.segment.table]
    if name.startswith("qwen2"):
        stack = model.encoder if name.endswith("classifier") else model.depth
        return [block.attention.output_bias for block in stack.blocks]
    return [model.head.bias] if name in ("bart", "marian") else []  # which is no parameter there


def shared(model):
    """Lists of the weights of ours for which the family has one: the tables of T5's distances."""
    if not model.name.startswith("t5"):
        return []
    sides = model.encoder, model.decoder
    return [[x.attention.score.terms[-1].table for x in side.blocks] for side in sides]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_gradient_descent_is_that_of_transformers(name, written, tmp_path):
    _, out = written
    model, _ = from_hugging_face(out / name)
    with np.load(out / name / "keras_attn_golden.npz") as file:
        inputs = {k.removeprefix("input_"): x for k, x in file.items() if k.startswith("input_")}
        mask = file["mask"]
    kept = {id(variable) for variable in frozen(name, model)}
    variables = [x for x in model.trainable_variables if id(x) not in kept]
    with tf.GradientTape() as tape:
        outputs = model(inputs)
        factors = np.random.RandomState(1).standard_normal(outputs.shape).astype("float32")
        loss = tf.reduce_sum(outputs * (factors * mask[..., None]))
    gradients = tape.gradient(loss, variables)
    for copies in shared(model):
        indices = [index for index, x in enumerate(variables) if any(x is y for y in copies)]
        total = sum(gradients[index] for index in indices)
        gradients = [total if i in indices else x for i, x in enumerate(gradients)]
    for variable, gradient in zip(variables, gradients, strict=True):
        if gradient is None:  # a table that no token of the batch reads
            continue
        # The table of T5 is ours times the root of the width.
        is_multiplied = model.name.startswith("t5") and variable is model.embedding.table
        length = 1 / model.embedding.hidden_dim if is_multiplied else 1.0
        variable.assign(variable - length * tf.convert_to_tensor(gradient))
    to_hugging_face(model, tmp_path / "step")
    files = out / name, out / name / "step", tmp_path / "step"
    before, theirs, ours = (safetensors.numpy.load_file(x / "model.safetensors") for x in files)
    for key, start in before.items():
        if PADDING_ROWS.get(name) == key:
            # Look-ups of transformers train no row of padding, in targets' starts and in texts.
            theirs[key][model.pad_id] = ours[key][model.pad_id]
        size = np.abs(theirs[key] - start).max()
        error = np.abs(ours[key] - theirs[key]).max()
        assert error <= STEP_TOLERANCE * max(size, np.abs(start).max()), key
        assert size > 0 or key == BIAS or key in UNREAD, key
