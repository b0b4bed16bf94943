"""Answers as parts of texts: the signature of questions and texts."""

import itertools

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.layers import AnswerHead

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
QUESTIONS, TEXTS = ["ab", "c", "a", "bb"], ["bcadb", "dcbaacb", "", "d" * 30]


@pytest.fixture(scope="module")
def model():
    bert = models.bert(9, max_length=21, num_segments=2, **SIZES)
    parts = bert.embedding, bert.position, bert.segment, bert.norm, bert.encoder
    model = models.MaskedLanguageModel(*parts, AnswerHead())
    oracles.scramble(model, scale=0.5)
    return model


def tokenizer(second_segment):
    reader = text.Characters("abcd")
    reader.template = text.Template(middle=(3, 3), end=(3,), second_segment=second_segment)
    return reader


@pytest.mark.parametrize("second_segment", [0, 1])
def test_the_best_part_of_the_text_is_the_answer(model, second_segment):
    """Each pair alone, and each part of its text, by the logits of its ids."""
    reader = tokenizer(second_segment)
    answer = export.QuestionAnswerer(model, reader).answer.python_function  # not traced
    outputs = answer(*map(tf.constant, (QUESTIONS, TEXTS)))
    ids, lengths, segments = map(np.asarray, reader.encode_pair(QUESTIONS, TEXTS, 21))
    for row, (question, length) in enumerate(zip(QUESTIONS, lengths, strict=True)):
        inputs = {"token_ids": ids[row : row + 1, :length]}
        inputs["segment_ids"] = segments[row : row + 1, :length]
        logits = np.asarray(model(inputs))[0]
        begin, end = len(question) + 2, length - 1
        if begin == end:
            assert outputs["answer"][row].numpy() == b"" and outputs["score"][row].numpy() == 0
            continue
        scores = np.exp(logits[begin:end]) / np.exp(logits[begin:end]).sum(axis=0)
        spans = itertools.combinations_with_replacement(range(end - begin), 2)
        first, last = max(spans, key=lambda span: scores[span[0], 0] * scores[span[1], 1])
        assert outputs["answer"][row].numpy().decode() == TEXTS[row][first : last + 1]
        expected = scores[first, 0] * scores[last, 1]
        np.testing.assert_allclose(outputs["score"][row], expected, rtol=1e-4)


@pytest.mark.slow
def test_an_export_answers(model, tmp_path):
    reader = tokenizer(0)
    path = export.saved_model(model, str(tmp_path), tokenizer=reader)
    assert not export.inspect(path).faults
    signatures = tf.saved_model.load(path).signatures
    questions, texts = map(tf.constant, (QUESTIONS, TEXTS))
    outputs = signatures["serving_default"](question=questions, text=texts)
    expected = export.QuestionAnswerer(model, reader).answer(QUESTIONS, TEXTS)
    assert outputs["answer"].numpy().tolist() == expected["answer"].numpy().tolist()
    assert {*signatures} == {"answer", "encode", "logits", "serving_default"}
