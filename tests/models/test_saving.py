"""Models and layers loaded from files in a fresh process give the same numbers."""

import pickle

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from fork_server import run_python
from models import builders

from keras_attn.depth import Stack
from keras_attn.layers import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    MultiHeadAttention,
    SegmentEmbedding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_attn.memory import SegmentMemory, StatefulSegments
from keras_attn.models import CausalLanguageModel, gpt, gtrxl
from keras_attn.norms import LayerNorm, RMSNorm
from keras_attn.ops.activations import gelu_tanh
from keras_attn.positions import Learned, Sinusoidal
from keras_attn.residuals import DeepNorm, LayerScale, PreNorm, SandwichNorm
from keras_attn.scores import FAVOR, Additive, ALiBi, Cosine, DotProduct, SoftCap, T5Bias

D = 6
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 7}
IDS = np.array([[5, 7, 9, 3], [8, 3, 0, 0]])
SEGMENTS = np.array([[0, 1, 1, 1], [0, 0, 0, 0]])


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


def with_memory():
    attention = MultiHeadAttention(2, 3, score="relative", pattern="causal")
    depth = Stack([TransformerBlock(attention, FeedForward(7))])
    model = CausalLanguageModel(TokenEmbedding(11, D), depth, memory=SegmentMemory(3))
    return StatefulSegments(model, batch_size=2)


COMBINATIONS = {
    "sandwich, rms, gated, t5": lambda: TransformerBlock(
        MultiHeadAttention(2, 3, score=DotProduct() + T5Bias(4, 9), pattern="causal"),
        GatedFeedForward(5),
        residual=SandwichNorm(norm=RMSNorm(offset=1.0)),
    ),
    "scale, dyt, experts, cap": lambda: TransformerBlock(
        MultiHeadAttention(2, 3, score=SoftCap(DotProduct() + ALiBi(), 3.0), pattern="causal"),
        MixtureOfExperts(GatedFeedForward(5), 3, shared=FeedForward(7)),
        residual=LayerScale(0.1, norm="dyt"),
    ),
    "cosine": lambda: TransformerBlock(
        MultiHeadAttention(2, 3, score=Cosine() + ALiBi(), pattern="causal"), FeedForward(5)
    ),
    "favor": lambda: TransformerBlock(
        MultiHeadAttention(2, 3, score=FAVOR(7), pattern="causal"), FeedForward(5)
    ),
    "deep norm": lambda: TransformerBlock(
        MultiHeadAttention(2, 3, pattern="causal"), FeedForward(5), residual=DeepNorm(2)
    ),
}


def combined():
    """Return a model with a block of each combination."""
    model = CausalLanguageModel(TokenEmbedding(11, D), Stack([m() for m in COMBINATIONS.values()]))
    return model


MODELS = {
    "parts": parts,
    "memory": with_memory,
    "combined": combined,
    "states": lambda: StatefulSegments(
        gtrxl(5, {"value": 3}, **SIZES, memory_length=4), batch_size=2
    ),
}


def made(name):
    """Return a model with random weights, and its inputs."""
    if name not in MODELS:
        model = builders.build(name)
        oracles.scramble(model, scale=0.5)
        memory = {}
        if getattr(model, "memory", None):
            memory = {k: np.asarray(x) for k, x in model.initial_memory(3).items()}
        return model, {**builders.inputs_of(model), **memory}
    model = MODELS[name]()
    oracles.scramble(model, scale=0.5)
    inputs = {
        "parts": {
            "x": oracles.random(2, 4, D),
            "context": oracles.random(2, 5, 5),
            "segments": SEGMENTS,
        },
        "states": {"states": oracles.random(2, 4, 5)},
    }
    return model, inputs.get(name, {"token_ids": IDS})


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
    names = [*MODELS, *builders.MODELS]
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
def test_saved_model_serves_any_batch_and_length(tmp_path):
    model, inputs = made("parts")
    model.export(tmp_path / "parts", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "parts")
    for batch, length in ((1, 2), (2, 4)):
        some = {
            key: tf.constant(x[:batch, :length], "float32" if x.dtype.kind == "f" else "int32")
            for key, x in inputs.items()
        }
        np.testing.assert_allclose(loaded.serve(some), model(some), atol=1e-5)


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
