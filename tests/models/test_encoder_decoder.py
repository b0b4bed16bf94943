"""`EncoderDecoder` with tables, norms and a head of its own, as Marian and BART have."""

import functools

import keras
import numpy as np
import oracles
import pytest

from keras_attn.depth import Stack
from keras_attn.layers import (
    FeedForward,
    MultiHeadAttention,
    TokenEmbedding,
    TokenHead,
    TransformerBlock,
)
from keras_attn.models import EncoderDecoder
from keras_attn.norms import LayerNorm
from keras_attn.positions import Learned

D, V, TARGET_V = 6, 13, 7
SOURCE = np.array([[5, 7, 12, 3], [8, 3, 0, 0]])
TARGET = np.array([[2, 6, 4], [2, 0, 0]])
INPUTS = {"source_ids": SOURCE, "target_ids": TARGET}


def stack(name, cross):
    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 3, pattern="causal" if cross else "dense"),
            FeedForward(7),
            cross_attention=MultiHeadAttention(2, 3) if cross else None,
        )

    return Stack(block, 1, name=name)


@functools.cache
def made(kind):
    embedding, other = TokenEmbedding(V, D), TokenEmbedding(TARGET_V, D)
    arguments = {
        "tied": {"head": TokenHead(embedding), "norm": LayerNorm(1e-5)},
        "separate": {"head": TokenHead(other)},
        "untied": {"head": keras.layers.Dense(TARGET_V), "target_embedding": other},
    }[kind]
    model = EncoderDecoder(
        embedding,
        Learned(8),
        stack("encoder", False),
        stack("decoder", True),
        source_position=Learned(5),
        **arguments,
    )
    oracles.scramble(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied", "separate", "untied"])
def test_logits_are_those_of_the_parts(kind):
    model = made(kind)
    tables = [oracles.numpy_of(e.table) for e in (model.embedding, model.target_embedding)]
    assert [len(table) for table in tables] == [V, V if kind == "tied" else TARGET_V]
    sides = []
    for ids, table, position, norm in (
        (SOURCE, tables[0], model.source_position, model.norm),
        (TARGET, tables[1], model.position, model.target_norm),
    ):
        x = table[ids] * D**0.5 + oracles.numpy_of(position.weights[0])[: ids.shape[1]]
        if kind == "tied":
            x = oracles.layer_norm(x, *oracles.norm_weights(norm), 1e-5)
        sides.append(x.astype("float32"))
    encoded = model.encoder(sides[0], padding_mask=SOURCE != 0)
    masks = {"padding_mask": TARGET != 0, "context_padding_mask": SOURCE != 0}
    hidden = np.asarray(model.decoder(sides[1], encoded, **masks))
    if kind == "untied":
        kernel, bias = map(oracles.numpy_of, model.head.weights)
    else:
        kernel, bias = tables[1].T, oracles.numpy_of(model.head.bias)
    np.testing.assert_allclose(model(INPUTS), hidden @ kernel + bias, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_a_table_is_saved_once(kind, tmp_path):
    model = made(kind)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert [w.shape for w in again.weights] == [w.shape for w in model.weights]
    assert again.count_params() == model.count_params()
    is_shared = again.embedding is again.target_embedding
    assert is_shared == (kind == "tied")
    if kind != "untied":
        assert again.head.embedding is again.target_embedding
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))
