"""Models and layers loaded from files in a fresh process give the same numbers."""

import pickle

import keras
import numpy as np
import oracles
import pytest
from fork_server import run_python
from models import builders

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, SegmentEmbedding, TransformerBlock
from keras_attn.models import gpt
from keras_attn.norms import LayerNorm
from keras_attn.ops.activations import gelu_tanh
from keras_attn.positions import Learned, Sinusoidal
from keras_attn.residuals import PreNorm
from keras_attn.scores import Additive

D = 6


def parts():
    """Return a model of layers that the other models do not use, or use with other arguments."""

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 3, pattern="causal", dropout=0.1, seed=index),
            FeedForward(7 + index, activation=gelu_tanh, dropout=0.1),
            cross_attention=MultiHeadAttention(
                4, 3, 5, score=Additive(3), num_key_value_heads=2, use_bias=False
            ),
            residual=PreNorm(LayerNorm(0.1)),
            dropout=0.1,
        )

    x, context = keras.Input((None, D), name="x"), keras.Input((None, 5), name="context")
    segments = keras.Input((None,), dtype="int32", name="segments")
    hidden = SegmentEmbedding(3)(Learned(9)(Sinusoidal("concat")(x)), segments)
    hidden = Stack(block, 2)(hidden, context)
    hidden = MultiHeadAttention(2, 3, output_shape=8)(hidden, context)
    return keras.Model({"x": x, "context": context, "segments": segments}, hidden)


def made(name):
    """Return a model with random weights, and its inputs."""
    model = parts() if name == "parts" else builders.build(name)
    oracles.scramble(model, scale=0.5)
    if name == "parts":
        return model, {
            "x": oracles.random(2, 4, D),
            "context": oracles.random(2, 5, 5),
            "segments": np.array([[0, 1, 1, 1], [0, 0, 0, 0]]),
        }
    memory = {}
    if getattr(model, "memory", None):
        memory = {k: np.asarray(x) for k, x in model.initial_memory(3).items()}
    return model, {**builders.inputs_of(model), **memory}


# One of each class of models and depths, with the parts that no other has; the golden files hold
# models of the other builders.
SAVED = "transformer_xl adaptive", "compressive_transformer", "universal_transformer", "reformer"
SAVED += "gpt_oss", "switch_transformer", "longformer", "perceiver", "image_transformer pixels"
SAVED += "deep_char_transformer", "gtrxl", "vit", "decision_transformer"

LOAD = """
import sys, pickle
import keras, numpy as np
import keras_attn

for path, inputs, expected in pickle.load(open(sys.argv[1], "rb")):
    output = keras.saving.load_model(path)(inputs)
    output = output["logits"] if isinstance(output, dict) else output
    output = keras.ops.convert_to_numpy(keras.ops.cast(output, "float32"))
    np.testing.assert_allclose(output, expected, atol=1e-6, err_msg=path)
    print(path)
"""


@pytest.mark.slow
def test_files_load_in_a_fresh_process(tmp_path):
    """One process loads all files; its dtype policy is float32."""
    tasks = []
    names = ["parts", *SAVED]
    for name, policy in [*((name, "float32") for name in names), ("parts", "mixed_bfloat16")]:
        keras.config.set_dtype_policy(policy)
        model, inputs = made(name)
        path = str(tmp_path / f"{name} {policy}.keras")
        model.save(path)
        output = model(inputs)
        output = oracles.numpy_of(output["logits"] if isinstance(output, dict) else output)
        assert np.ptp(output) > 0.1
        tasks.append((path, inputs, output))
    (tmp_path / "tasks").write_bytes(pickle.dumps(tasks))
    done = run_python("-c", LOAD, str(tmp_path / "tasks"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [path for path, _, _ in tasks]


def test_a_loaded_model_has_its_class_and_one_shared_table(tmp_path):
    model, inputs = made("transformer")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model) and again.name == model.name
    shapes = [tuple(w.shape) for w in again.weights]
    assert shapes == [tuple(w.shape) for w in model.weights] and shapes.count((13, 8)) == 1
    constants, cache = again.start(inputs, max_length=3)
    logits, _ = again.step(inputs["target_ids"][:, :1], constants, cache, np.arange(1))
    np.testing.assert_allclose(logits[:, 0], model(inputs)[:, 0], atol=1e-5)


@pytest.mark.slow
def test_a_save_that_fails_keeps_the_earlier_file(tmp_path, monkeypatch):
    model, path = gpt(11, 1, 1, 6, 5, max_length=7), tmp_path / "model.keras"
    model.save(path)
    before = path.read_bytes()

    def cut(self, filepath, *arguments, **options):
        with open(filepath, "wb") as file:
            file.write(b"cut")
        raise RuntimeError("the end of the disk")

    monkeypatch.setattr(keras.Model, "save", cut)
    with pytest.raises(RuntimeError, match="the end of the disk"):
        model.save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_layer_saves_the_sums_of_its_kernels_and_adapters():
    layer, plain, x = MultiHeadAttention(2, 3), MultiHeadAttention(2, 3), oracles.random(2, 4, D)
    layer.build(x.shape, x.shape)
    plain.build(x.shape, x.shape)
    layer.add_update("query", rank=2, scale=1.0)
    oracles.scramble(layer)
    store = {}
    layer.save_own_variables(store)
    plain.load_own_variables(store)
    np.testing.assert_allclose(plain(x, x), layer(x, x), atol=1e-5)
