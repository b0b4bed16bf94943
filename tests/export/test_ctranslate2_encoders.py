"""Encoders exported for CTranslate2, compared with the same models in Python."""

import ctranslate2
import keras
import numpy as np
import oracles
import pytest
from each import check_each

from keras_attn import export, models
from keras_attn.layers import TokenEmbedding
from keras_attn.patterns import Local

V = 23
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 19}
ONE_LAYER = {**SIZES, "num_layers": 1}


def scrambled(model):
    oracles.scramble(model, seed=3, scale=0.5)
    return model


def words(ids):
    return [str(i) for i in ids]


def encoder_outputs(path, rows, segments=None):
    """Return the hidden states, and the pooled ones or None, of rows of ids."""
    output = ctranslate2.Encoder(path).forward_batch([words(row) for row in rows], None, segments)
    return [
        None if x is None else np.array(x) for x in (output.last_hidden_state, output.pooler_output)
    ]


@pytest.mark.slow
def test_hidden_states_of_an_encoder_are_those_of_python(tmp_path):
    """The export itself compares those of 3 and 5 tokens only."""
    model = scrambled(models.bert(V, **SIZES, max_length=64, num_segments=3))
    path = export.ctranslate2(model, tmp_path / "ct2")
    generator = np.random.default_rng(0)
    ids, segments = generator.integers(4, V, size=(2, 61)), generator.integers(3, size=(2, 61))
    ids[1, 41:] = segments[1, 41:] = 0
    rows, kinds = ([x[0].tolist(), x[1, :41].tolist()] for x in (ids, segments))
    states, pooled = encoder_outputs(path, rows, kinds)
    features = keras.Model(model.input, model.encoder.output)
    expected = np.asarray(features({"token_ids": ids, "segment_ids": segments}))
    for state, row, length in zip(states, expected, (61, 41), strict=True):
        np.testing.assert_allclose(state[:length], row[:length], atol=1e-5)
    assert pooled is None
    alone, _ = encoder_outputs(path, rows[:1])  # of segment 0
    expected = np.asarray(features({"token_ids": ids[:1], "segment_ids": None}))
    np.testing.assert_allclose(alone, expected, atol=1e-5)


def classifier(**arguments):
    """A classifier of the parts of a BERT, by default without classes."""
    bert = models.bert(V, **ONE_LAYER, max_length=8)
    names = "embedding", "encoder", "position", "segment", "norm"
    parts = {name: getattr(bert, name) for name in names}
    return models.Classifier(**{"num_classes": None, **parts, **arguments})


@pytest.mark.slow
def test_pooled_outputs_are_those_of_the_pooler(tmp_path):
    model = scrambled(classifier(pooler=keras.layers.Dense(16, "tanh"), pooling="first"))
    _, pooled = encoder_outputs(export.ctranslate2(model, tmp_path / "ct2"), [[5, 9, 22]])
    np.testing.assert_allclose(pooled, model({"token_ids": np.array([[5, 9, 22]])}), atol=1e-5)


@pytest.mark.slow
def test_an_encoder_without_a_pooler_has_hidden_states_only(tmp_path):
    """Such as that of a sentence encoder, whose features are the mean."""
    model = scrambled(classifier(pooling="mean"))
    states, pooled = encoder_outputs(export.ctranslate2(model, tmp_path / "ct2"), [[5, 9, 22]])
    assert pooled is None
    expected = np.asarray(model({"token_ids": np.array([[5, 9, 22]])}))
    np.testing.assert_allclose(states.mean(axis=1), expected, atol=1e-5)


REFUSED = {
    "classes": (lambda: classifier(num_classes=3), "a `Classifier` without classes"),
    "pooler": (
        lambda: classifier(pooler=keras.layers.Dense(16, "relu")),
        "a `Dense` layer with tanh after the first position",
    ),
    "pooler of the mean": (
        lambda: classifier(pooling="mean", pooler=keras.layers.Dense(16, "tanh")),
        "a `Dense` layer with tanh after the first position",
    ),
    "pattern of an encoder": (
        lambda: models.bert(V, **ONE_LAYER, max_length=8, pattern=Local(3, causal=False)),
        "`Dense` in an encoder",
    ),
    "scaled embeddings": (
        lambda: classifier(embedding=TokenEmbedding(V, 16)),
        "segments beside tokens with `scaled=False`",
    ),
}


def test_encoders_that_ctranslate2_lacks_are_refused(tmp_path):
    def check(make, sentence):
        with pytest.raises(ValueError, match=f"CTranslate2 lacks this part.*{sentence}"):
            export.ctranslate2(make(), tmp_path / "ct2")

    check_each(check, REFUSED)
    assert not list(tmp_path.iterdir())
