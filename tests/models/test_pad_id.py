"""Ids of padding: any, none, and padding as the first token of a target."""

import functools

import numpy as np
import oracles
import pytest
from marks import slow

from keras_attn import depth, models
from keras_attn.layers import (
    AdaptiveEmbedding,
    FeedForward,
    MixtureOfExperts,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)

V, D = 13, 6
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 7, "dropout": 0.0}
TEXT = np.array([[5, 0, 9, 3, 0], [8, 3, 0, 0, 7]])
PADDED = np.array([[5, 6, 9, 3, 11], [8, 3, 11, 11, 11]])
REAL = PADDED != 11
# A permutation of the ids, by which 0 becomes another one.
RENAMED = np.roll(np.arange(V), 4)


def made(build, pad_id, like=None, names=None):
    """Return a model; one `like` another has its weights, and calls its id i `names[i]`."""
    arguments = {"max_length": 8} if build in (models.gpt, models.bert) else {}
    model = build(V, **SIZES, **arguments, pad_id=pad_id)
    if like is None:
        oracles.scramble(model)
        return model
    for ours, its in zip(model.weights, like.weights, strict=True):
        x = oracles.numpy_of(its)
        axes = [axis for axis, size in enumerate(x.shape) if size == V and names is not None]
        ours.assign(np.take(x, np.argsort(names), axes[0]) if axes else x)
    return model


@pytest.mark.slow
def test_id_0_is_a_token_like_any_other_in_a_gpt_without_padding():
    model = made(models.gpt, None)
    logits = np.asarray(model(TEXT))
    again = np.asarray(made(models.gpt, None, model, RENAMED)(RENAMED[TEXT]))
    np.testing.assert_allclose(again[..., RENAMED], logits, atol=1e-5)
    masked = made(models.gpt, 0, model)
    assert np.abs(np.asarray(masked(TEXT)) - logits).max() > 1e-2
    # Padding at the end of a row needs no mask.
    alone = np.asarray(model(TEXT[:, :3]))
    np.testing.assert_allclose(logits[:, :3], alone, atol=1e-5)
    assert getattr(model(TEXT), "_keras_mask", None) is None


@pytest.mark.parametrize("build", [models.bert, slow(models.t5)])
def test_any_id_can_be_padding(build):
    model = made(build, 11)
    again = made(build, int(RENAMED[11]), model, RENAMED)
    if build is models.bert:
        inputs = [{"token_ids": ids} for ids in (PADDED, RENAMED[PADDED])]
    else:
        inputs = [
            {"source_ids": ids, "target_ids": names[TEXT]}
            for ids, names in ((PADDED, np.arange(V)), (RENAMED[PADDED], RENAMED))
        ]
    logits, new_logits = np.asarray(model(inputs[0])), np.asarray(again(inputs[1]))[..., RENAMED]
    np.testing.assert_allclose(new_logits, logits, atol=1e-5)
    other = {name: np.where(ids == 11, 4, ids) for name, ids in inputs[0].items()}
    real = REAL if build is models.bert else slice(None)
    assert np.abs(np.asarray(model(other)) - logits)[real].max() > 1e-3


@pytest.mark.slow
def test_a_target_may_start_with_the_id_of_padding():
    model = made(functools.partial(models.t5, start_id=11), 11)
    table = model.embedding.table
    table.assign(np.where(np.arange(V)[:, None] == 2, oracles.numpy_of(table)[11], table))
    target = np.array([[11, 5, 9, 11], [11, 11, 11, 11]])
    start = np.where(np.arange(4) == 0, 2, target)
    inputs = {"source_ids": PADDED, "target_ids": target}
    logits, start_logits = (model({**inputs, "target_ids": ids}) for ids in (target, start))
    np.testing.assert_array_equal(logits, start_logits)
    np.testing.assert_array_equal(logits._keras_mask, [[1, 1, 1, 0], [1, 0, 0, 0]])
    weights = [
        np.asarray(model.cross_attention({**inputs, "target_ids": x})) for x in (target, start)
    ]
    np.testing.assert_array_equal(*weights)


def test_steps_compute_the_experts_of_a_start_that_is_padding():
    """Logits of all targets at once are the oracle."""

    def attention(**options):
        return MultiHeadAttention(2, 3, **options)

    experts = MixtureOfExperts(FeedForward(7), 5, top_k=1, router="probability")
    causal = TransformerBlock(
        attention(pattern="causal"), experts, cross_attention=attention(), residual="pre_norm"
    )
    encoder = depth.Stack([TransformerBlock(attention(), FeedForward(7))])
    embedding = TokenEmbedding(V, D)
    model = models.EncoderDecoder(embedding, None, encoder, depth.Stack([causal]), start_id=0)
    oracles.scramble(model)
    source, target = np.array([[5, 9, 4, 0]]), np.array([[0, 7, 3, 11]])
    expected = np.asarray(model({"source_ids": source, "target_ids": target}))
    constants, cache = model.start(source, 4)
    for index in range(4):
        positions = np.array([index])
        logits, cache = model.step(target[:, index : index + 1], constants, cache, positions)
        np.testing.assert_allclose(logits[:, 0], expected[:, index], atol=1e-5)


@pytest.mark.parametrize("pad_id", [-1, V, 1.5])
def test_padding_is_an_id_of_the_vocabulary(pad_id):
    for build in (TokenEmbedding, AdaptiveEmbedding):
        with pytest.raises(ValueError, match=f"Received: pad_id={pad_id}"):
            build(V, D, pad_id=pad_id)
