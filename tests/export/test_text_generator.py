"""Continuations and scores: the same answers in Python and from the file, and what is ignored."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.generation import Sample, generate

TEXTS = ["the cat", "", "on", "a dog ran over the hill and sat"]
MAX_LENGTH, MAX_PROMPT = 5, 11


@pytest.fixture(scope="module", params=["characters", "bpe"])
def tokenizer(request):
    sentences = ["the cat sat on the mat", "a dog ran over the hill and sat"]
    if request.param == "characters":
        return text.Characters.train(sentences)
    return text.SentencePiece.train(sentences * 3, 40, "bpe")


def made(vocabulary_size):
    model = models.gpt(vocabulary_size, 2, 2, 6, 7, max_length=MAX_LENGTH + MAX_PROMPT)
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        weight.assign(random.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(tokenizer.vocabulary_size)


def tokens_of(tokenizer, sentence):
    return tokenizer.encode_as_lists([sentence])[0]


def continuation(model, tokenizer, sentence):
    """The ids and score after the last tokens of one sentence."""
    prompt = tokens_of(tokenizer, sentence)[-MAX_PROMPT:]
    ids, score = generate(model, prompt[None], Sample(seed=1), MAX_LENGTH)
    return prompt, ids.numpy()[0], float(score[0])


def log_probability(model, tokens):
    """The sum over all tokens but the first, each by a pass over those before it."""
    total = 0.0
    for place in range(1, len(tokens)):
        logits = np.asarray(model({"token_ids": tokens[None, :place]})[0, -1], "float64")
        total += logits[tokens[place]] - np.log(np.exp(logits).sum())
    return total


def test_text_and_score(model, tokenizer, tmp_path):
    strategy = Sample(seed=1)
    writer = export.TextGenerator(model, tokenizer, strategy, MAX_LENGTH, MAX_PROMPT)
    path = export.saved_model(
        model,
        tmp_path,
        tokenizer=tokenizer,
        strategy=strategy,
        max_length=MAX_LENGTH,
        max_source_length=MAX_PROMPT,
    )
    loaded = tf.saved_model.load(path)
    for write in (writer.text, loaded.signatures["serving_default"]):
        for sentence in TEXTS:
            answer = write(text=tf.constant([sentence]))
            written = answer["continuation"].numpy()[0].decode()
            if not sentence:
                assert written == "" and answer["score"].numpy()[0] == 0
                continue
            prompt, ids, score = continuation(model, tokenizer, sentence)
            both = tokenizer.decode([[*prompt, *ids]]).numpy()[0].decode()
            assert tokenizer.decode([prompt]).numpy()[0].decode() + written == both
            assert answer["score"].numpy()[0] == pytest.approx(score, abs=1e-4)
    for score in (writer.score, loaded.signatures["score"]):
        answer = score(text=tf.constant(TEXTS))
        for row, sentence in enumerate(TEXTS):
            tokens = tokens_of(tokenizer, sentence)[: MAX_PROMPT + MAX_LENGTH]
            assert answer["num_tokens"].numpy()[row] == max(len(tokens) - 1, 0)
            expected = log_probability(model, tokens)
            assert answer["log_probability"].numpy()[row] == pytest.approx(expected, abs=1e-4)


def test_ids_beyond_a_rows_length_are_ignored(tmp_path):
    model = made(13)
    path = export.saved_model(model, tmp_path, max_length=MAX_LENGTH, max_source_length=MAX_PROMPT)
    signatures = tf.saved_model.load(path).signatures
    assert sorted(signatures) == ["ids", "score", "serving_default"]
    ids, lengths = [[5, 7, 9, 4], [5, 7, 9, 9], [5, 6, 7, 8]], [3, 2, 0]
    clean = [[5, 7, 9, 0], [5, 7, 0, 0], [0, 0, 0, 0]]
    for name in ("ids", "score"):
        ask = signatures[name]
        padded = ask(token_ids=tf.constant(ids), lengths=tf.constant(lengths))
        alone = ask(token_ids=tf.constant(clean), lengths=tf.constant(lengths))
        for output in padded:
            np.testing.assert_array_equal(padded[output], alone[output])
        # One row alone, and one whose length is more than there is.
        one = ask(token_ids=tf.constant([[5, 7]]), lengths=tf.constant([9]))
        for output in one:
            np.testing.assert_allclose(one[output][0], padded[output][1], atol=1e-5)
    empty = ask(token_ids=tf.zeros((2, 0), tf.int32), lengths=tf.constant([0, 0]))
    np.testing.assert_array_equal(empty["log_probability"], [0, 0])


def test_errors(model, tokenizer):
    with pytest.raises(ValueError, match="max_prompt_length=0"):
        export.TokenGenerator(model, max_prompt_length=0)
    with pytest.raises(ValueError, match="vocabularies of the same size"):
        export.TextGenerator(made(tokenizer.vocabulary_size + 1), tokenizer, max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match="`max_length` must be at most 16.*max_length=17"):
        export.TokenGenerator(model, max_length=MAX_LENGTH + MAX_PROMPT + 1)


def test_a_prompt_gets_what_positions_are_left(model):
    """The default prompt is longer than the model's 16 positions."""
    ids = np.random.default_rng(5).integers(4, 9, (1, 40)).astype("int32")
    writer = export.TokenGenerator(model, Sample(seed=1), max_length=MAX_LENGTH)
    expected, score = generate(model, ids[:, -12:], Sample(seed=1), MAX_LENGTH)
    answer = writer.ids(ids, [40])
    np.testing.assert_array_equal(answer["ids"], expected)
    np.testing.assert_allclose(answer["score"], score, atol=1e-4)
    scored = writer.score_ids(ids, [40])
    assert scored["num_tokens"].numpy() == [15]
    expected = log_probability(model, ids[0, :16])
    assert float(scored["log_probability"][0]) == pytest.approx(expected, 1e-4)


@pytest.mark.parametrize("counts", [[3], [3, 2, 1]])
def test_another_number_of_lengths_than_of_rows(model, counts):
    writer = export.TokenGenerator(model, max_length=MAX_LENGTH)
    for ask in (writer.ids, writer.score_ids):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one number for each row"):
            ask([[5, 7, 9], [5, 7, 9]], counts)
