"""Signatures of models that label words."""

from unittest import mock

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, text
from keras_attn.models import MaskedLanguageModel, bert

PIECES = "[PAD] [UNK] [CLS] [SEP] un ##able able to ##s go".split()
LABELS = ["noun", "verb", "other"]
MOST = 7


@pytest.fixture(scope="module")
def model():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    parts = bert(len(PIECES), **sizes, max_length=MOST)
    head = keras.layers.Dense(len(LABELS))
    arguments = parts.embedding, parts.position, parts.segment, parts.norm, parts.encoder
    model = MaskedLanguageModel(*arguments, head)
    oracles.scramble(model)
    return model


@pytest.mark.slow
def test_a_word_has_the_label_of_its_first_piece(model):
    """The last word of the last text is beyond what the model reads, so it has none."""
    tagger = export.TextTagger(model, text.WordPiece(PIECES), LABELS, max_length=100)
    texts = [" unable  to\tgos", "go", "  ", "go go unable go go"]
    outputs = {name: x.numpy() for name, x in tagger.text(texts).items()}
    words = [[b"unable", b"to", b"gos"], [b"go"], [], [b"go", b"go", b"unable", b"go", b"go"]]
    assert outputs["words"].tolist() == [row + [b""] * (5 - len(row)) for row in words]
    # [CLS] un ##able to go ##s [SEP], and [CLS] go [SEP]
    rows, places = [[2, 4, 5, 7, 9, 8, 3], [2, 9, 3]], [[1, 3, 4], [1]]
    for row, (ids, firsts) in enumerate(zip(rows, places, strict=True)):
        logits = np.asarray(model({"token_ids": np.array([ids])}))[0, firsts].astype("float64")
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        count = len(firsts)
        np.testing.assert_allclose(
            outputs["probabilities"][row, :count], probabilities.max(axis=-1), atol=1e-5
        )
        expected = [LABELS[k].encode() for k in logits.argmax(axis=-1)]
        assert outputs["labels"][row, :count].tolist() == expected
        assert not outputs["probabilities"][row, count:].any()
        assert not any(outputs["labels"][row, count:].tolist())
    assert not outputs["probabilities"][2].any()
    assert [bool(label) for label in outputs["labels"][3]] == [True] * 4 + [False]
    assert outputs["probabilities"][3, 4] == 0


def test_labels_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match="`labels` must be a list of 3 strings"):
        export.TextTagger(model, text.WordPiece(PIECES), ["noun"])
    with pytest.raises(ValueError, match="Received: labels='abc'"):
        export.TextTagger(model, text.WordPiece(PIECES), "abc")


@pytest.mark.slow
def test_an_export_answers_as_python(model, tmp_path, assert_warmup_records_match):
    tokenizer = text.WordPiece(PIECES)
    path = export.saved_model(model, tmp_path, tokenizer=tokenizer, labels=LABELS)
    signatures = tf.saved_model.load(path).signatures
    assert_warmup_records_match(path, signatures)
    with mock.patch("keras_attn.export.inspection.replay", return_value={}) as replay:
        assert export.inspect(path).tokenizer == "WordPiece"
    assert replay.call_args.kwargs == {"uses_text": True}
    texts = tf.constant(["unable to go", "go"])
    outputs, tagger = signatures["tag"](text=texts), export.TextTagger(model, tokenizer, LABELS)
    for name, value in tagger.text(texts).items():
        if name == "probabilities":
            np.testing.assert_allclose(outputs[name], value, atol=1e-6)
        else:
            np.testing.assert_array_equal(outputs[name], value)
