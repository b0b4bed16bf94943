"""Classifiers of texts by the last token."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import depth, export, models
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock

PAD = 6
# Rows of 5, 3 and 1 tokens, the second with the id of padding in its middle.
IDS = np.array([[3, 9, 4, 4, 1], [5, PAD, 7, PAD, PAD], [2, PAD, PAD, PAD, PAD]])
LENGTHS = [5, 3, 1]


def classifier(pattern="causal", pad_id=PAD, num_classes=3, pooling="last", **options):
    attention = MultiHeadAttention(2, 4, pattern=pattern, position="rotary")
    stack = depth.Stack([TransformerBlock(attention, FeedForward(7))])
    embedding = TokenEmbedding(11, 6, pad_id=pad_id)
    model = models.Classifier(embedding, stack, num_classes, pooling=pooling, **options)
    oracles.scramble(model, scale=0.5)
    return model


def test_the_mean_is_that_of_real_tokens():
    model = classifier("dense", pooling="mean")
    hidden = np.asarray(model.encoder(model.embedding(IDS)))[2, 0]
    kernel, bias = map(oracles.numpy_of, model.head.weights)
    np.testing.assert_allclose(model(IDS)[2], hidden @ kernel + bias, atol=1e-5)
    hidden = np.asarray(model.encoder(model.embedding(IDS[:1])))[0].mean(axis=0)
    np.testing.assert_allclose(model(IDS)[0], hidden @ kernel + bias, atol=1e-5)


def test_the_last_token_decides_and_padding_does_not():
    """Each row without its padding, by the layers one by one."""
    model = classifier()
    logits = np.asarray(model(IDS))
    kernel, bias = map(oracles.numpy_of, model.head.weights)
    for row, length in enumerate(LENGTHS):
        table = oracles.numpy_of(model.embedding.table)
        x = (table[IDS[row, :length]] * np.sqrt(6)).astype("float32")
        hidden = np.asarray(model.encoder(x[None]))[0, -1]
        np.testing.assert_allclose(logits[row], hidden @ kernel + bias, atol=1e-5)


@pytest.mark.slow
def test_without_an_id_of_padding_the_last_position_decides():
    model = classifier()
    whole = classifier(pad_id=None)
    whole.set_weights(model.get_weights())
    np.testing.assert_allclose(whole(IDS)[:1], model(IDS)[:1], atol=1e-6)
    assert np.abs(np.asarray(whole(IDS) - model(IDS)))[1:].max(axis=1).min() > 1e-3


def test_a_row_of_padding_has_finite_logits_and_gradients():
    model = classifier()
    with tf.GradientTape() as tape:
        outputs = model(np.full((1, 3), PAD))
    gradients = tape.gradient(outputs, model.trainable_variables)
    values = [outputs, *(tf.convert_to_tensor(x) for x in gradients if x is not None)]
    assert all(np.isfinite(np.asarray(x)).all() for x in values)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_texts_without_tokens_have_the_logits_of_no_features(pooling):
    model = classifier(pooling=pooling)
    logits = np.asarray(model(np.zeros((2, 0), "int32")))
    np.testing.assert_allclose(logits, np.tile(model.head.bias, (2, 1)), atol=1e-6)


@pytest.mark.slow
def test_a_file_keeps_the_pooling_and_the_head_without_a_bias(tmp_path):
    model = classifier(use_bias=False)
    assert len(model.head.weights) == 1
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.pooling, again.use_bias) == ("last", False)
    np.testing.assert_array_equal(again(IDS), model(IDS))


@pytest.mark.slow
def test_an_export_of_ids_reads_lengths(tmp_path):
    """Tokens beyond the end of a row change nothing."""
    model = classifier()
    export.saved_model(model, tmp_path)
    classify = tf.saved_model.load(str(tmp_path / "1")).signatures["classify"]
    beyond = np.arange(5) >= np.array(LENGTHS)[:, None]
    ids = np.where(beyond, 8, IDS).astype("int32")
    outputs = classify(token_ids=tf.constant(ids), lengths=tf.constant(LENGTHS))
    expected = keras.ops.softmax(model(IDS))
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
