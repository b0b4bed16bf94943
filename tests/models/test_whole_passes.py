"""Models equal their papers' formulas in float64."""

import keras
import numpy as np
import oracles
import pytest
from keras import ops
from models import whole_passes
from models.builders import IDS, SOURCES, build, built, whole_pass

from keras_attn import models

PASSES = {
    "gpt": lambda model: whole_passes.gpt(model, IDS),
    "bert": lambda model: whole_passes.bert(model, IDS, IDS % 2),
    "llama": lambda model: whole_passes.llama(model, IDS),
    "gpt_oss": lambda model: whole_passes.gpt_oss(model, IDS, window=3, yarn=(8, 70)),
    "gemma": lambda model: whole_passes.gemma(model, IDS, window=3),
    "t5": lambda model: whole_passes.t5(model, SOURCES, IDS),
    "t5 gated": lambda model: whole_passes.t5(model, SOURCES, IDS),
}


@pytest.mark.parametrize("name", PASSES)
def test_output_equals_the_formula(name):
    output, expected, real = whole_pass(name), PASSES[name](built(name)), IDS != 0
    tolerance = 4e-6 * np.abs(expected[real]).max()  # padding may attend to padding
    np.testing.assert_allclose(output[real], expected[real], rtol=0, atol=tolerance)


def test_without_segments_a_text_is_the_first_one():
    model, real = built("bert"), IDS != 0
    output = np.asarray(model({"token_ids": IDS}))
    np.testing.assert_allclose(output[real], whole_passes.bert(model, IDS)[real], atol=1e-4)


def test_bert_lets_every_token_attend_to_every_other():
    ids = np.repeat(IDS[:1], 11, axis=0)
    changed = np.where(np.eye(11, dtype=bool), ids % 12 + 1, ids)
    output = np.asarray(built("bert")({"token_ids": np.concatenate([ids[:1], changed])}))
    assert np.all(np.any(output[1:] != output[0], axis=-1))


@pytest.mark.slow
def test_berts_encoder_gives_features_that_its_head_scores_by_the_table():
    model = built("bert")
    features = keras.Model(model.input, model.get_layer("encoder").output)
    encoded = features({"token_ids": IDS, "segment_ids": IDS % 2})
    assert encoded.shape == (*IDS.shape, 8)
    np.testing.assert_allclose(model.head(encoded), whole_pass("bert"), atol=1e-5)
    assert model.head.embedding is model.embedding


@pytest.mark.slow
def test_gates_of_gpt_oss_are_bounded():
    """A gate of 7 or more gives what 7 gives; no gate is too small."""
    layer = built("gpt_oss").depth.blocks[0].feed_forward.expert
    gate, x = np.array([-9.0, 0.5, 7.0, 9.0]), np.array([-9.0, 2.0, 7.0, 9.0])
    g, h = np.minimum(gate, 7), np.clip(x, -7, 7)
    output = layer.join(ops.convert_to_tensor(gate), ops.convert_to_tensor(x))
    np.testing.assert_allclose(output, g / (1 + np.exp(-1.702 * g)) * (h + 1), rtol=1e-6)


def test_decisions_depend_on_what_was_known_before_them():
    """Not on the action itself, nor on anything later; on all actions before."""
    model, rows = built("decision_transformer"), np.zeros(4, int)
    inputs = {
        "returns": oracles.random(1, 7)[rows],
        "states": oracles.random(1, 7, 5)[rows],
        "actions": oracles.random(1, 7, 13)[rows],
    }
    inputs = {name: x.copy() for name, x in inputs.items()}
    for row, name in enumerate(("actions", "states", "returns"), start=1):
        inputs[name][row, 3] += 1.0
    output = np.asarray(model(inputs))
    moved = np.abs(output[1:] - output[0]).max(axis=-1) > 1e-6
    for row, first in zip(moved, (4, 3, 3), strict=True):
        assert not row[:first].any() and row[first:].all()
    steps = np.tile(np.arange(7, dtype="int32"), (4, 1))
    padded = {name: np.pad(x, ((0, 0), (0, 2), (0, 0))[: x.ndim]) for name, x in inputs.items()}
    mask = np.tile(np.arange(9) < 7, (4, 1))
    padded_rows = np.asarray(model({**padded, "padding_mask": mask}))[:, :7]
    np.testing.assert_allclose(padded_rows, output, atol=1e-5)
    np.testing.assert_allclose(model({**inputs, "steps": steps}), output, atol=1e-6)
    assert np.abs(np.asarray(model({**inputs, "steps": steps + 1})) - output).max() > 1e-3


def test_discrete_actions_are_logits():
    model = models.decision_transformer(
        5, 4, discrete=True, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=7
    )
    actions = np.array([[0, 3, 1]], "int32")
    logits = model(
        {"returns": np.ones((1, 3)), "states": oracles.random(1, 3, 5), "actions": actions}
    )
    assert logits.shape == (1, 3, 4) and model.head.activation is keras.activations.linear


@pytest.mark.slow
def test_latents_read_a_set():
    """Without positions in the input, its order does not matter."""
    model, x = built("perceiver"), oracles.random(2, 7, 8)
    latents = np.asarray(model.encoder(x))
    np.testing.assert_allclose(model.encoder(x[:, ::-1]), latents, atol=1e-5)
    assert np.abs(np.diff(latents, axis=1)).min() > 0  # each position writes its own


def test_t5_starts_with_the_deviations_of_the_paper():
    model = models.t5(50, 1, 4, 32, 48, key_dim=16)
    attention = model.decoder.blocks[0].attention
    for weight, variance in (
        (attention.query_kernel, 1 / (32 * 16)),
        (attention.key_kernel, 1 / 32),
        (attention.output_kernel, 1 / 64),
        (model.encoder.blocks[0].feed_forward.output_dense.kernel, 1 / 48),
    ):
        measured_variance = weight.numpy().var()
        assert abs(measured_variance / variance - 1) < 5 * np.sqrt(2 / weight.numpy().size)


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("switch_transformer", {"expert_every": 0}, "`expert_every`.* expert_every=0"),
        ("longformer", {"num_global": -1}, "`num_global`.* num_global=-1"),
        ("gpt", {"num_layers": 0}, "num_layers=0"),
        ("gpt", {"num_layers": "2"}, "num_layers='2'"),
        ("sparse_transformer", {"num_layers": 0}, "num_layers=0"),
        ("sparse_transformer", {"factors": "both"}, "factors='both'"),
        ("sparse_transformer", {"factors": "full", "key_dim": 2.5}, "key_dim=2.5"),
        (
            "sparse_transformer",
            {"num_heads": 1, "factors": "per_head"},
            "at least two heads.*num_heads=1",
        ),
        ("reformer", {"attention": ()}, r"`attention` must be at least one of .*attention=\(\)"),
        ("reformer", {"axial_shape": ()}, "shape"),
        ("reformer", {"attention": ("lsh", "dense")}, "`attention` must be one of .*='dense'"),
        ("universal_transformer", {"depth": "stack"}, "depth='stack'"),
        ("universal_transformer", {"transition": "linear"}, "transition='linear'"),
        ("transformer", {"num_heads": 3}, "hidden_dim=8, num_heads=3"),
        ("transformer", {"num_heads": 0}, "num_heads=0"),
        ("transformer", {"num_layers": 0}, "num_layers=0"),
        ("transformer", {"vocabulary_size": 0}, "vocabulary_size=0"),
        ("transformer", {"intermediate_dim": -1}, "intermediate_dim=-1"),
        ("transformer", {"dropout": 1.0}, "dropout=1.0"),
        ("transformer", {"position": "learnt"}, "position='learnt'"),
        ("transformer", {"residual": "sandwich"}, "residual='sandwich'"),
        ("transformer", {"score": "aditive"}, "score='aditive'"),
        ("universal_transformer", {"score": "aditive"}, "score='aditive'"),
    ],
)
def test_invalid_arguments_raise(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(name, **arguments)


@pytest.mark.parametrize("name", ["gpt", "deep_char_transformer"])
def test_texts_longer_than_the_table_raise(name):
    with pytest.raises(ValueError, match="length 17, a table of 16"):
        built(name)({"token_ids": np.ones((1, 17), "int32")})
