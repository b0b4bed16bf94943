"""Signatures of causal models: continuations and log-probabilities, in Python and from the file."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import depth, export, layers, models, text
from keras_attn.generation import Sample, generate

SENTENCES = ["the cat sat on the mat", "a dog ran over the hill and sat"]
TEXTS = ["the cat", "", "on", "a dog ran over the hill and sat"]
MAX_LENGTH, MAX_PROMPT = 5, 11


def random_gpt(vocabulary_size):
    model = models.gpt(vocabulary_size, 1, 2, 6, 7, max_length=MAX_LENGTH + MAX_PROMPT)
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        weight.assign(random.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def model():
    """A model without a tokenizer."""
    return random_gpt(13)


def log_probability(model, tokens):
    """The sum over all tokens but the first, each predicted from the tokens before it."""
    logits = np.asarray(model({"token_ids": tokens[None]})[0], "float64")
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return sum(logs[place - 1, tokens[place]] for place in range(1, len(tokens)))


def greedy_ids(model, prompt, ends):
    """The most likely tokens after a prompt, up to one of `ends`, without caches or a graph."""
    ids = list(prompt)
    while len(ids) < len(prompt) + MAX_LENGTH and (len(ids) == len(prompt) or ids[-1] not in ends):
        logits = np.asarray(model({"token_ids": np.array([ids])}))
        ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt) :]


def check_continuations(function, model, tokenizer, strategy, texts=TEXTS):
    """Each sentence alone gives the text that `generate` continues its last tokens with."""
    for sentence in texts:
        outputs = function(text=tf.constant([sentence]))
        continuation, score = (
            outputs["continuation"].numpy()[0].decode(),
            outputs["score"].numpy()[0],
        )
        if not sentence:
            assert (continuation, score) == ("", 0)
            continue
        prompt = tokenizer.encode_as_lists([sentence])[0][-MAX_PROMPT:]
        ids, expected = generate(model, prompt[None], strategy, MAX_LENGTH)
        whole = tokenizer.decode([[*prompt, *ids.numpy()[0]]]).numpy()[0].decode()
        assert tokenizer.decode([prompt]).numpy()[0].decode() + continuation == whole
        assert score == pytest.approx(float(expected[0]), abs=1e-4)


def check_log_probabilities(function, model, tokenizer):
    outputs = function(text=tf.constant(TEXTS))
    for row, sentence in enumerate(TEXTS):
        tokens = tokenizer.encode_as_lists([sentence])[0][: MAX_PROMPT + MAX_LENGTH]
        assert outputs["num_tokens"].numpy()[row] == max(len(tokens) - 1, 0)
        expected = log_probability(model, tokens) if len(tokens) else 0
        assert outputs["log_probability"].numpy()[row] == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_the_file_gives_what_the_model_gives(tmp_path, warmup_records, assert_warmup_records_match):
    tokenizer = text.Characters.train(SENTENCES)
    model = random_gpt(tokenizer.vocabulary_size)
    path = export.saved_model(
        model,
        tmp_path,
        tokenizer=tokenizer,
        max_length=MAX_LENGTH,
        max_source_length=MAX_PROMPT,
    )
    signatures = tf.saved_model.load(path).signatures
    check_continuations(signatures["serving_default"], model, tokenizer, "greedy", TEXTS[:2])
    check_log_probabilities(signatures["score"], model, tokenizer)
    assert_warmup_records_match(path, signatures)
    # The recorded text has known tokens, the last ones: its outputs depend on their weights.
    (recorded,) = warmup_records(path)["score"][0]["text"]
    ids, lengths = tokenizer.encode([recorded.decode()])
    last = tokenizer.vocabulary_size - np.arange(1, 4)
    np.testing.assert_array_equal(ids[0, : int(lengths[0]) - 1], last)


@pytest.mark.slow
def test_several_end_tokens_end_a_text_and_are_no_part_of_it():
    tokenizer = text.Characters.train(SENTENCES)
    model = random_gpt(tokenizer.vocabulary_size)
    prompts = tokenizer.encode_as_lists(["the cat", "on"])
    free = [greedy_ids(model, prompt, ()) for prompt in prompts]
    ends = [3, free[0][2], free[1][1]]
    generator = export.TextGenerator(
        model, tokenizer, max_length=MAX_LENGTH, max_prompt_length=MAX_PROMPT, eos_id=ends
    )
    outputs = generator.text(["the cat", "on"])
    for row, prompt in enumerate(prompts):
        ids = greedy_ids(model, prompt, ends)
        assert len(ids) < MAX_LENGTH and ids[-1] in ends[1:]
        expected = tokenizer.decode_as_strings([ids[:-1]])[0]
        assert outputs["continuation"][row].numpy().decode() == expected
        whole = log_probability(model, np.array([*prompt, *ids]))
        score = whole - log_probability(model, prompt)
        assert float(outputs["score"][row]) == pytest.approx(score, abs=1e-4)


@pytest.fixture(scope="module")
def act_model():
    """A model whose depth has a metric, which is updated in training only."""
    block = layers.TransformerBlock(
        layers.MultiHeadAttention(2, 3, pattern="causal"), layers.FeedForward(7)
    )
    act = depth.ACT(block, max_steps=2)
    model = models.CausalLanguageModel(layers.TokenEmbedding(13, 6), act, "sinusoidal")
    oracles.scramble(model)
    return model


@pytest.mark.slow
def test_ids_beyond_a_rows_length_are_ignored(
    act_model, tmp_path, assert_warmup_records_match, assert_ids_are_checked
):
    options = {"max_length": MAX_LENGTH, "max_source_length": MAX_PROMPT}
    path = export.saved_model(act_model, tmp_path, **options)
    signatures = tf.saved_model.load(path).signatures
    assert {*signatures} == {"ids", "score", "serving_default", "halting"}
    assert_warmup_records_match(path, signatures)
    ids, lengths = [[5, 7, 9, 4], [5, 7, 9, 9], [5, 6, 7, 8]], [3, 2, 0]
    clean = [[5, 7, 9, 0], [5, 7, 0, 0], [0, 0, 0, 0]]
    for name in ("ids", "score"):
        run = signatures[name]
        padded = run(token_ids=tf.constant(ids), lengths=tf.constant(lengths))
        alone = run(token_ids=tf.constant(clean), lengths=tf.constant(lengths))
        for output in padded:
            np.testing.assert_array_equal(padded[output], alone[output])
        assert_ids_are_checked(run, 13, {"token_ids": [[5, 7, 9]], "lengths": [3]})
        one = run(token_ids=tf.constant([[5, 7]]), lengths=tf.constant([2]))
        for output in one:
            np.testing.assert_allclose(one[output][0], padded[output][1], atol=1e-5)
    empty = run(token_ids=tf.zeros((2, 0), tf.int32), lengths=tf.constant([0, 0]))
    np.testing.assert_array_equal(empty["log_probability"], [0, 0])


def test_lengths_and_vocabularies_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match="max_prompt_length=0"):
        export.TokenGenerator(model, max_prompt_length=0)
    with pytest.raises(ValueError, match="vocabularies of the same size"):
        tokenizer = text.Characters.train(SENTENCES)
        export.TextGenerator(model, tokenizer, max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match=r"`SentencePiece.load\(path\)`.*tokenizer='words.model'"):
        export.TextGenerator(model, "words.model", max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match="Did you mean 'beam'?.*strategy='beem'"):
        export.TokenGenerator(model, "beem", max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match="`max_length` must be at most 16.*max_length=17"):
        export.TokenGenerator(model, max_length=MAX_LENGTH + MAX_PROMPT + 1)


def test_log_probabilities_of_ids_are_those_of_the_model(model):
    """As far as the model's 16 positions go."""
    generator = export.TokenGenerator(model, max_length=MAX_LENGTH)
    ids = np.random.default_rng(5).integers(4, 9, (2, 40)).astype("int32")
    outputs = generator.score_ids(ids, [40, 3])
    for row, length in enumerate((16, 3)):
        assert outputs["num_tokens"][row] == length - 1
        expected = log_probability(model, ids[row, :length])
        assert float(outputs["log_probability"][row]) == pytest.approx(expected, 1e-4)
    for lengths in ([3], [3, 2, 1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one number for each row"):
            generator.score_ids([[5, 7, 9], [5, 7, 9]], lengths)


@pytest.mark.slow
def test_the_prompt_is_limited_by_the_models_positions(model):
    """The default limit is longer than the model's 16 positions."""
    ids = np.random.default_rng(5).integers(4, 9, (1, 40)).astype("int32")
    generator = export.TokenGenerator(model, Sample(seed=1), max_length=MAX_LENGTH)
    expected, score = generate(model, ids[:, -12:], Sample(seed=1), MAX_LENGTH)
    outputs = generator.ids(ids, [40])
    np.testing.assert_array_equal(outputs["ids"], expected)
    np.testing.assert_allclose(outputs["score"], score, atol=1e-4)


@pytest.mark.slow
def test_id_0_of_a_prompt_is_a_token_of_a_model_without_padding():
    model = models.gpt(13, 1, 2, 6, 7, max_length=MAX_LENGTH + MAX_PROMPT, pad_id=None)
    oracles.scramble(model)
    generator = export.TokenGenerator(model, "greedy", 3, MAX_PROMPT)
    rows = [[0, 7, 0], [5], [0, 0]]
    padded = [[*row, *[11] * (3 - len(row))] for row in rows]
    outputs = generator.ids(padded, [len(row) for row in rows])
    scores = generator.score_ids(padded, [len(row) for row in rows])
    for place, row in enumerate(rows):
        ids, score = generate(model, [row], "greedy", 3)
        assert outputs["ids"][place].numpy().tolist() == ids[0].numpy().tolist()
        np.testing.assert_allclose(outputs["score"][place], score[0], rtol=1e-5)
        expected = log_probability(model, np.array(row)) if len(row) > 1 else 0
        np.testing.assert_allclose(scores["log_probability"][place], expected, rtol=1e-4)
