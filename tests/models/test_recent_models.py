"""Models since 2019: formulas, caches, padding, files and training."""

import functools
import json

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops
from models import whole_passes

from keras_attn import depth, export, models
from keras_attn.export.golden_outputs import replay
from keras_attn.generation import generate
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.positions import YaRN

SIZES = {
    "vocabulary_size": 17,
    "num_layers": 1,
    "num_heads": 3,
    "hidden_dim": 12,
    "intermediate_dim": 11,
}
IDS = np.array([[5, 7, 16, 9, 3, 11, 2], [8, 4, 3, 12, 0, 0, 0]], "int32")
SOURCE = np.array([[5, 7, 16, 9, 3], [8, 4, 3, 0, 0]], "int32")
CAUSAL = {"token_ids": IDS}
BOTH = {"source_ids": SOURCE, "target_ids": IDS}
IMAGES = {"images": np.random.default_rng(0).normal(size=(2, 4, 6, 1)).astype("float32")}
STEPS = {
    "returns": oracles.random(2, 7),
    "states": oracles.random(2, 7, 5),
    "actions": oracles.random(2, 7, 7, seed=1),
}
CACHED = ["llama", "mistral", "mixtral", "gpt_oss", "gemma", "t5", "t5 1.1", "switch_transformer"]
# Arguments beside the sizes, and inputs.
MODELS = {
    "llama": ({"num_key_value_heads": 1}, CAUSAL),
    "mistral": ({"window": 3}, CAUSAL),
    "mixtral": ({"num_experts": 3}, CAUSAL),
    "gpt_oss": (
        {
            **{"num_layers": 2, "num_key_value_heads": 1, "key_dim": 6, "window": 3},
            **{"num_experts": 5, "top_k": 2, "scaling": YaRN(8, 70, truncate=False)},
        },
        CAUSAL,
    ),
    "gemma": ({"num_layers": 2, "key_dim": 6, "num_key_value_heads": 1, "window": 3}, CAUSAL),
    "t5": ({"key_dim": 5}, BOTH),
    "t5 1.1": ({"key_dim": 5, "gated": True, "tied": False}, BOTH),
    "switch_transformer": ({"num_layers": 2, "num_experts": 5}, BOTH),
    "longformer": ({"num_layers": 1, "window": 2, "max_length": 9}, CAUSAL),
    "big_bird": ({"num_layers": 1, "block_length": 1, "num_random": 2, "max_length": 11}, CAUSAL),
    "modern_bert": ({"num_layers": 2, "window": 4}, CAUSAL),
    "perceiver": ({"num_latents": 4, "latent_dim": 9, "key_dim": 5, "max_length": 9}, CAUSAL),
    "decision_transformer": ({"state_size": 5, "action_size": 7, "max_steps": 9}, STEPS),
    "vit": ({"num_classes": 17, "image_shape": (4, 6, 1), "patch_size": 2}, IMAGES),
}


# The parts of the others are in those, or in tests of their own.
IN_FILES = ("gemma", "modern_bert", "perceiver", "decision_transformer", "vit")
TRAINED = ("llama", "modern_bert", "decision_transformer", "vit")
# tests/recipes/catalogue exports the parts of the others.
EXPORTED = ("gpt_oss", "t5", "perceiver", "vit")


def fast(names):
    """Return all models as parameters, of which those without one of the names are slow."""
    return [pytest.param(n, marks=[] if n in names else [pytest.mark.slow]) for n in MODELS]


def build(name, **more):
    arguments = {**SIZES, **MODELS[name][0], "dropout": 0.0, **more}
    if not {"token_ids", "target_ids"} & set(MODELS[name][1]):
        del arguments["vocabulary_size"]
    return getattr(models, name.split()[0])(**arguments)


@functools.cache
def built(name):
    """Return a model with random weights, its inputs, and its output as an array."""
    model, inputs = build(name), MODELS[name][1]
    oracles.scramble(model, scale=0.5)
    return model, inputs, np.asarray(model(inputs))


@pytest.fixture(scope="module", autouse=True)
def _free():
    yield
    built.cache_clear()


def test_llama_equals_the_formula():
    model, _, found = built("llama")
    check_equal(found, whole_passes.llama(model, IDS))


def test_gpt_oss_equals_the_formula():
    model, _, found = built("gpt_oss")
    check_equal(found, whole_passes.gpt_oss(model, IDS, window=3, yarn=(8, 70)))


def test_gates_of_gpt_oss_are_bounded():
    """A gate of 7 or more gives what 7 gives; no gate is too small."""
    layer = built("gpt_oss")[0].depth.blocks[0].feed_forward.expert
    gate, x = np.array([-9.0, 0.5, 7.0, 9.0]), np.array([-9.0, 2.0, 7.0, 9.0])
    g, h = np.minimum(gate, 7), np.clip(x, -7, 7)
    found = layer.join(ops.convert_to_tensor(gate), ops.convert_to_tensor(x))
    np.testing.assert_allclose(found, g / (1 + np.exp(-1.702 * g)) * (h + 1), rtol=1e-6)


def test_gemma_equals_the_formula():
    model, _, found = built("gemma")
    check_equal(found, whole_passes.gemma(model, IDS, window=3))


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
def test_t5_equals_the_formula(name):
    model, _, found = built(name)
    check_equal(found, whole_passes.t5(model, SOURCE, IDS))


def check_equal(found, expected):
    real = IDS != 0  # padding may attend to padding
    np.testing.assert_allclose(
        found[real], expected[real], rtol=0, atol=2e-6 * np.abs(expected[real]).max()
    )


@pytest.mark.parametrize("name", CACHED)
def test_steps_with_a_cache_equal_one_pass(name):
    model, inputs, expected = built(name)
    constants, cache = model.start(inputs, max_length=IDS.shape[1])
    for start, end in ((0, 4), (4, 5), (5, 7)):
        places = np.arange(start, end, dtype="int32")
        logits, cache = model.step(IDS[:, start:end], constants, cache, places)
        real = IDS[:, start:end] != 0
        np.testing.assert_allclose(
            np.asarray(logits)[real], expected[:, start:end][real], atol=1e-4
        )


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name not in ("vit", "decision_transformer")]
)
def test_padding_has_no_influence(name):
    model, inputs, expected = built(name)
    padded = {key: np.pad(ids, ((0, 0), (0, 2))) for key, ids in inputs.items()}
    found, real = np.asarray(model(padded))[:, : IDS.shape[1]], IDS != 0
    np.testing.assert_allclose(found[real], expected[real], atol=1e-5)


@pytest.mark.parametrize("name", fast(IN_FILES))
def test_a_file_restores_the_model(tmp_path, name):
    model, inputs, expected = built(name)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())
    np.testing.assert_array_equal(np.asarray(again(inputs)), expected)


@pytest.mark.parametrize("name", fast(TRAINED))
def test_training_in_mixed_precision_changes_every_weight(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model, inputs = build(name, dropout=0.1), MODELS[name][1]
    labels, loss = IDS, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "vit":
        labels = IDS[:, 0]
    if name == "decision_transformer":
        labels, loss = inputs["actions"], "mean_squared_error"
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    before = model.get_weights()
    for _ in range(1 + (name == "vit")):  # through its head of zeros no gradient passes at first
        assert np.isfinite(model.train_on_batch(inputs, labels))
    unchanged = [
        variable.path
        for variable, old in zip(model.weights, before, strict=True)
        if variable.trainable and np.array_equal(ops.convert_to_numpy(variable), old)
    ]
    assert unchanged == []


def test_decisions_depend_on_what_was_known_before_them():
    """Not on the action itself, nor on anything later; on all actions before."""
    model, inputs, expected = built("decision_transformer")
    for name, first in (("actions", 4), ("states", 3), ("returns", 3)):
        changed = {**inputs, name: inputs[name].copy()}
        changed[name][:, 3] += 1.0
        moved = np.abs(np.asarray(model(changed)) - expected).max(axis=-1) > 1e-6
        assert not moved[:, :first].any() and moved[:, first:].all(), name


def test_steps_and_padding_of_trajectories():
    model, inputs, expected = built("decision_transformer")
    padded = {
        name: np.pad(x, ((0, 0), (0, 2)) + ((0, 0),) * (x.ndim - 2)) for name, x in inputs.items()
    }
    mask = np.arange(9) < [[7], [7]]
    found = np.asarray(model({**padded, "padding_mask": mask}))[:, :7]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    steps = np.tile(np.arange(7, dtype="int32"), (2, 1))
    np.testing.assert_array_equal(model({**inputs, "steps": steps}), expected)
    assert np.abs(np.asarray(model({**inputs, "steps": steps + 1})) - expected).max() > 1e-3


def test_discrete_actions_are_logits():
    model = models.decision_transformer(5, 4, discrete=True, hidden_dim=6, intermediate_dim=7)
    actions = np.array([[0, 3, 1]], "int32")
    found = model(
        {"returns": np.ones((1, 3)), "states": oracles.random(1, 3, 5), "actions": actions}
    )
    assert found.shape == (1, 3, 4) and model.head.activation is keras.activations.linear


def test_latents_read_a_set():
    """Without positions in the input, its order does not matter."""
    model, _, _ = built("perceiver")
    x = oracles.random(2, 7, 12)
    found = np.asarray(model.encoder(x))
    np.testing.assert_allclose(model.encoder(x[:, ::-1]), found, atol=1e-5)
    assert np.abs(np.diff(found, axis=1)).min() > 0  # each position writes its own


def test_a_classifier_of_texts_takes_the_mean_of_real_tokens():
    stack = depth.Stack([TransformerBlock(MultiHeadAttention(2, 3), FeedForward(7))])
    model = models.Classifier(TokenEmbedding(17, 6), stack, 3, pooling="mean")
    oracles.scramble(model, scale=0.5)
    found = np.asarray(model(IDS))
    hidden = np.asarray(stack(model.embedding(IDS[1:, :4])))[0].mean(axis=0)
    kernel, bias = map(oracles.numpy_of, model.head.weights)
    np.testing.assert_allclose(found[1], hidden @ kernel + bias, atol=1e-5)


def test_t5_starts_with_the_deviations_of_the_paper():
    model = models.t5(50, 1, 4, 32, 48, key_dim=16)
    attention = model.decoder.blocks[0].attention
    for weight, variance in (
        (attention.query_kernel, 1 / (32 * 16)),
        (attention.key_kernel, 1 / 32),
        (attention.output_kernel, 1 / 64),
        (model.encoder.blocks[0].feed_forward.output_dense.kernel, 1 / 48),
    ):
        found = weight.numpy().var()
        assert abs(found / variance - 1) < 5 * np.sqrt(2 / weight.numpy().size)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_an_export_gives_what_the_model_gives(tmp_path, name):
    model, inputs, expected = built(name)
    directory = export.saved_model(model, tmp_path, max_length=3, max_source_length=7)
    assert set(replay(directory).values()) <= {"same", "runs"}
    loaded = tf.saved_model.load(directory).signatures
    if name == "vit":
        found = loaded["classify"](images=tf.constant(inputs["images"]))
        np.testing.assert_allclose(found["probabilities"], ops.softmax(expected), atol=1e-5)
        return
    ids = inputs.get("source_ids", IDS)
    lengths = tf.constant((ids != 0).sum(axis=1), "int32")
    if name not in CACHED:
        found = loaded["logits"](token_ids=tf.constant(ids), lengths=lengths)["logits"]
        np.testing.assert_allclose(found[ids != 0], expected[ids != 0], atol=1e-5)
        return
    names = ("token_ids", "lengths") if ids is IDS else ("source_ids", "source_lengths")
    found = loaded["ids"](**dict(zip(names, (tf.constant(ids), lengths), strict=True)))["ids"]
    np.testing.assert_array_equal(found, generate(model, ids, max_length=3)[0])


@pytest.mark.slow
def test_an_export_of_a_decision_transformer_decides(tmp_path):
    model, inputs, expected = built("decision_transformer")
    model.export(tmp_path / "export", verbose=False)
    given = {
        **inputs,
        "steps": np.tile(np.arange(7, dtype="int32"), (2, 1)),
        "padding_mask": np.ones((2, 7), bool),
    }
    loaded = tf.saved_model.load(tmp_path / "export")
    found = loaded.serve({name: tf.constant(x) for name, x in given.items()})
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_number_of_global_tokens_below_0_is_named():
    with pytest.raises(ValueError, match="`expert_every` must be an integer .* expert_every=0"):
        models.switch_transformer(11, 1, 2, 8, 12, expert_every=0)
    with pytest.raises(ValueError, match="`num_global` must be an integer .* num_global=-1"):
        build("longformer", num_global=-1)
