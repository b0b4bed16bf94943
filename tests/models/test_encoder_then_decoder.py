"""`EncoderThenDecoder`: both stacks of an encoder-decoder read one text."""

import functools

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import depth, export, models, positions, text
from keras_attn.layers import (
    AnswerHead,
    FeedForward,
    MultiHeadAttention,
    Pool,
    TokenEmbedding,
    TransformerBlock,
)

D, V, END = 6, 13, 3
# Rows of 7 and 5 tokens, with two ends each, of which none is the last token.
IDS = np.array([[5, END, 12, 8, END, 7, 4], [8, 9, END, END, 6, 0, 0]])
LENGTHS, LAST_ENDS = [7, 5], [4, 3]


def stack(is_decoder):
    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 3, pattern="causal" if is_decoder else "dense"),
            FeedForward(7),
            cross_attention=MultiHeadAttention(2, 3) if is_decoder else None,
        )

    return depth.Stack(block, 2 if is_decoder else 1)


@functools.cache
def sides(start_id):
    """An encoder-decoder with random weights."""
    model = models.EncoderDecoder(
        TokenEmbedding(V, D),
        positions.Learned(8),
        stack(False),
        stack(True),
        source_position=positions.Learned(9),
        norm="layer_norm",
        start_id=start_id,
    )
    oracles.scramble(model, scale=0.5)
    return model


def both(start_id):
    model = sides(2 if start_id is None else start_id)
    parts = {name: getattr(model, name) for name in ("embedding", "encoder", "decoder")}
    parts |= {name: getattr(model, name) for name in ("position", "source_position", "norm")}
    layer = models.EncoderThenDecoder(**parts, start_id=start_id)
    layer.build((None, None, D))
    layer.target_norm.set_weights(model.target_norm.get_weights())
    return layer


@functools.cache
def classifier(start_id=2):
    pooling = Pool("last", token_id=END)
    model = models.Classifier(None, both(start_id), 3, pooling=pooling)
    model.head.set_weights([oracles.random(*w.shape) for w in model.head.weights])
    return model


def expected_states(ids, start_id):
    """The decoder's states for the tokens before each one, by the encoder-decoder."""
    model = sides(2 if start_id is None else start_id)
    states = models.Part(model.input, model.get_layer("decoder").output)
    starts = ids[:, -1] if start_id is None else start_id
    targets = np.concatenate([np.full((len(ids), 1), starts), ids[:, :-1]], axis=1)
    return np.asarray(states({"source_ids": ids, "target_ids": targets}))


@pytest.mark.parametrize("start_id", [2, 0, None])
def test_the_decoder_reads_the_tokens_before_each_one(start_id):
    """Also from the id of padding, as T5's does; without an id from the last token."""
    model = classifier(start_id)
    states = np.asarray(models.Part(model.input, model.encoder_output)(IDS))
    logits = np.asarray(model(IDS))
    kernel, bias = map(oracles.numpy_of, model.head.weights)
    for row, length in enumerate(LENGTHS):
        expected = expected_states(IDS[row : row + 1, :length], start_id)[0]
        np.testing.assert_allclose(states[row, :length], expected, atol=1e-5)
        expected = expected[LAST_ENDS[row]] @ kernel + bias
        np.testing.assert_allclose(logits[row], expected, atol=1e-5)


def test_a_model_of_both_sides_survives_a_file_with_one_table(tmp_path):
    model = classifier()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(IDS), model(IDS), atol=1e-6)
    assert again.embedding is again.encoder.embedding
    assert (again.max_length, len(again.weights)) == (8, len(model.weights))


def test_texts_get_classes_and_ids_answers():
    tokenizer = text.Characters("abcdefg")
    predictor = export.TextClassifier(classifier(), tokenizer, ["no", "so", "yes"])
    texts = ["ab", "cagedb"]
    ids, lengths = tokenizer.encode(texts, 8)
    outputs = predictor.text.python_function(tf.constant(texts))  # not traced
    ids, lengths = np.asarray(ids), np.asarray(lengths)
    assert ids[0, lengths[0] - 1] == END
    logits = classifier()(np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, 0))
    expected = keras.ops.softmax(logits)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
    parts = (None, None, None, None, both(2), AnswerHead())
    answers = export.TokenEncoder(models.MaskedLanguageModel(*parts))
    outputs = answers.logits.python_function(*map(tf.constant, (IDS, LENGTHS)))
    assert outputs["logits"].shape == (2, 7, 2)


def test_what_does_not_fit_is_refused():
    embedding = TokenEmbedding(V, D)
    with pytest.raises(ValueError, match="The blocks' `pattern` must be causal"):
        models.EncoderThenDecoder(embedding, stack(False), stack(False))
    with pytest.raises(ValueError, match="`embedding` can only be None where `encoder` has one"):
        models.Classifier(None, stack(False), 3)
