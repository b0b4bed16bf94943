"""Models and layers loaded from files, also in a fresh process, give the same numbers."""

import json
import pickle

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from fork_server import run_python

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
from keras_attn.models import (
    CausalLanguageModel,
    adaptive_span_transformer,
    bert,
    compressive_transformer,
    deep_char_transformer,
    gpt,
    gtrxl,
    image_transformer,
    reformer,
    sparse_transformer,
    super_resolution_transformer,
    transformer,
    transformer_xl,
    universal_transformer,
)
from keras_attn.norms import LayerNorm, RMSNorm
from keras_attn.ops.activations import gelu_tanh
from keras_attn.patterns import BlockLocal2D
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


MODELS = {
    "parts": parts,
    "memory": with_memory,
    "states": lambda: StatefulSegments(
        gtrxl(5, {"value": 3}, **SIZES, memory_length=4), batch_size=2
    ),
    "image": lambda: image_transformer(
        11, (2, 3, 2), **SIZES, pattern=BlockLocal2D((2, 6), (2, 2), (1, 1))
    ),
    "pixels": lambda: image_transformer(4, (2, 3, 2), **SIZES, num_mixtures=3),
    "super-resolution": lambda: super_resolution_transformer(11, (1, 2, 2), (2, 3, 2), 1, **SIZES),
    "transformer": lambda: transformer(11, **SIZES),
    "universal": lambda: universal_transformer(11, **SIZES, depth="act"),
    "universal convolution": lambda: universal_transformer(
        11, **SIZES, transition="separable_conv"
    ),
    "gpt": lambda: gpt(11, **SIZES, max_length=5),
    "bert": lambda: bert(11, **SIZES, max_length=5),
    "deep_char_transformer": lambda: deep_char_transformer(11, **SIZES, max_length=5),
    "transformer_xl": lambda: transformer_xl(11, **SIZES, memory_length=3, clamp_length=2),
    "compressive_transformer": lambda: compressive_transformer(
        11, **SIZES, memory_length=1, compressed_length=2, rate=2
    ),
    "adaptive softmax": lambda: transformer_xl(
        11, **SIZES, memory_length=3, cutoffs=[3, 7], div_val=2
    ),
    "adaptive_span_transformer": lambda: adaptive_span_transformer(11, **SIZES, max_span=3, ramp=2),
    "sparse_transformer": lambda: sparse_transformer(11, **SIZES, image_shape=(3, 2, 1)),
    "fixed per head": lambda: sparse_transformer(
        11, **SIZES, image_shape=(3, 2, 1), summary=1, factors="per_head", key_dim=2
    ),
    "reformer": lambda: reformer(
        11,
        **{**SIZES, "num_layers": 2},
        axial_shape=(3, 2),
        attention=("lsh", "local"),
        chunk_length=2,
        local_length=2,
        feed_forward_chunks=2,
    ),
}
VARIANTS = ("memory", "states", "pixels", "super-resolution", "universal convolution")
BUILDERS = [name for name in MODELS if name not in ("parts", *VARIANTS)]
WITH_MEMORY = ("transformer_xl", "adaptive softmax", "adaptive_span_transformer")
COMPRESSIVE = ("compressive_transformer",)


def inputs_of(name, batch=2, length=4):
    ids, segments = IDS[:batch, :length], SEGMENTS[:batch, :length]
    if name in (*WITH_MEMORY, *COMPRESSIVE):
        memory = oracles.random(batch, SIZES["num_layers"], 3, D)
        inputs = {"token_ids": ids, "memory": memory, "memory_length": np.arange(batch) + 2}
        more = {"compressed_memory_length": np.arange(batch)} if name in COMPRESSIVE else {}
        return {**inputs, **more}
    others = {
        "parts": {
            "x": oracles.random(batch, length, D),
            "context": oracles.random(batch, length + 1, 5),
            "segments": segments,
        },
        "memory": {"token_ids": ids},
        "image": {"token_ids": ids},
        "pixels": {"token_ids": ids},
        "super-resolution": {"source_ids": ids, "target_ids": ids[:, :-1]},
        "states": {"states": oracles.random(batch, length, 5)},
        "transformer": {"source_ids": ids, "target_ids": ids[:, :-1]},
        "universal": {"source_ids": ids, "target_ids": ids[:, :-1]},
        "universal convolution": {"source_ids": ids, "target_ids": ids[:, :-1]},
        "bert": {"token_ids": ids, "segment_ids": segments},
    }
    return others.get(name, {"token_ids": ids})


def made(name):
    model = MODELS[name]()
    oracles.scramble(model, scale=0.5)
    return model


def logits_of(outputs):
    return outputs["logits"] if isinstance(outputs, dict) else outputs


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
    for name, policy in [*((name, "float32") for name in MODELS), ("parts", "mixed_bfloat16")]:
        keras.config.set_dtype_policy(policy)
        model, inputs = made(name), inputs_of(name)
        path = str(tmp_path / f"{name} {policy}.keras")
        model.save(path)
        output = oracles.numpy_of(logits_of(model(inputs)))
        assert np.ptp(output) > 0.1
        tasks.append((path, inputs, output))
    (tmp_path / "tasks").write_bytes(pickle.dumps(tasks))
    done = run_python("-c", LOAD, str(tmp_path / "tasks"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [path for path, _, _ in tasks]


@pytest.mark.parametrize("name", MODELS)
def test_every_part_of_a_built_model_is_built(name):
    """With an unbuilt layer, Keras on JAX retraces in each `fit`, and runs `predict` eagerly."""
    model = MODELS[name]()
    assert [layer.path for layer in model._flatten_layers() if not layer.built] == []


@pytest.mark.parametrize("name", BUILDERS)
def test_config_rebuilds_the_same_model(name):
    model = made(name)
    again = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())
    again.set_weights(model.get_weights())
    tf.nest.map_structure(
        np.testing.assert_array_equal, again(inputs_of(name)), model(inputs_of(name))
    )


@pytest.mark.parametrize("name", ["transformer", "adaptive softmax", "universal", "bert"])
def test_loaded_model_has_its_class_and_one_shared_table(tmp_path, name):
    model, inputs = made(name), inputs_of(name)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model) and again.name == model.name
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())
    shapes = [tuple(w.shape) for w in again.weights]
    assert shapes == [tuple(w.shape) for w in model.weights]
    assert shapes.count((11, D)) == (name != "adaptive softmax")
    if name in ("transformer", "universal"):
        constants, cache = again.start(inputs, max_length=3)
        logits, _ = again.step(IDS[:, :1], constants, cache, np.arange(1))
        np.testing.assert_allclose(logits[:, 0], model(inputs)[:, 0], atol=1e-5)


# Those that tests of the exports do not load with several shapes.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["parts", "transformer", "bert", "adaptive_span_transformer", "sparse_transformer"]
)
def test_saved_model_serves_any_batch_and_length(tmp_path, name):
    model = made(name)
    model.export(tmp_path / name, verbose=False)
    loaded = tf.saved_model.load(tmp_path / name)
    for batch, length in ((1, 2), (2, 4)):
        inputs = {
            key: tf.constant(x, "float32" if x.dtype.kind == "f" else "int32")
            for key, x in inputs_of(name, batch, length).items()
        }
        found, expected = loaded.serve(inputs), model(inputs)
        np.testing.assert_allclose(logits_of(found), logits_of(expected), atol=1e-5)


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


@pytest.mark.parametrize("make", COMBINATIONS.values(), ids=COMBINATIONS)
def test_combined_values_load_from_a_file(tmp_path, make):
    model = CausalLanguageModel(TokenEmbedding(11, D), Stack([make(), make()]))
    oracles.scramble(model)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    ids = np.array([[4, 7, 9, 5]])
    np.testing.assert_allclose(again(ids), model(ids), atol=1e-6)


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
