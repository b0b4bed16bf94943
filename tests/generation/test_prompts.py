"""Prompts and sources that end at given lengths, or before the model's id of padding."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from decoding_models import (
    BOS,
    VOCABULARY,
    beam_by_hand,
    decode_eagerly,
    last,
    model_of,
    sharpened,
)
from marks import slow_but

from keras_attn import models
from keras_attn.generation import Beam, Sample, Speculative, decoding, generate

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11, "dropout": 0.0}
# Ids after the lengths are no text: some lie outside the vocabulary.
ROWS = np.array([[0, 5, 6, 99], [0, 0, 4, 5], [6, 99, -1, 0]], "int32")
LENGTHS = np.array([3, 4, 1], "int32")


@functools.cache
def subject(kind):
    """Return a model without padding, and next-token log-probabilities computed without a cache."""
    if kind == "causal":
        model = sharpened(models.gpt(VOCABULARY, max_length=16, pad_id=None, **SIZES), seed=8)
    else:
        model = sharpened(models.transformer(VOCABULARY, pad_id=None, **SIZES), seed=18)

    @functools.cache
    def log_probs(row, tokens):
        text = ROWS[row, : LENGTHS[row]].tolist()
        if kind == "causal":
            return last(model(np.array([[*text, *tokens]])))
        return last(model({"source_ids": [text], "target_ids": [[BOS, *tokens]]}))

    return model, log_probs


def by_hand(log_probs, row, max_length, end=None):
    """Decode greedily; what follows the end token is filled with it, as no id is padding."""
    tokens = []
    while len(tokens) < max_length and end not in tokens:
        tokens.append(int(log_probs(row, tuple(tokens)).argmax()))
    return tokens + [end] * (max_length - len(tokens))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["causal", "encoder_decoder"])
def test_rows_of_a_model_without_padding_end_at_their_lengths(kind):
    model, log_probs = subject(kind)
    end = by_hand(log_probs, 0, 2)[1]  # so that one row ends after two tokens
    expected = [by_hand(log_probs, row, 4, end) for row in range(3)]
    for strategy in ["greedy", Speculative(model, 2)][: 2 if kind == "causal" else 1]:
        ids, _ = decode_eagerly(model, ROWS, strategy, 4, (end,), lengths=LENGTHS)
        assert ids.tolist() == expected
    if kind == "causal":
        ids, _ = decode_eagerly(model, ROWS, Beam(2), 2, (end,), lengths=LENGTHS)
        for row in range(3):
            tokens, _ = beam_by_hand(log_probs, row, 2, 0.6, 2, (end,))
            assert ids[row].tolist() == [*tokens, *[end] * (2 - len(tokens))]
        # Without lengths all ids are tokens.
        alone, _ = decode_eagerly(model, ROWS[:1, :3], "greedy", 4, (end,))
        assert alone.tolist() == expected[:1]


def test_the_penalty_counts_id_0_of_a_text_and_no_id_after_its_end():
    model, log_probs = subject("causal")
    strategy = Sample(top_k=1, repetition_penalty=3.0)
    ids, _ = decode_eagerly(model, ROWS, strategy, 2, lengths=LENGTHS)
    for row, end in enumerate(LENGTHS):
        text = ROWS[row, :end].tolist()
        for token in ids[row]:
            logits = np.asarray(model(np.array([text])), "float64")[0, -1]
            penalised = np.where(logits > 0, logits / 3, logits * 3)
            assert token == np.where(np.isin(range(VOCABULARY), text), penalised, logits).argmax()
            text.append(int(token))


class Echo:
    """A model that repeats the last token of its prompt."""

    reads_prompt, max_length, max_source_length, pad_id = True, None, None, 5

    def start(self, inputs, max_length, padding_mask):
        return {}, tf.zeros((1, 1, 1))

    def step(self, token_ids, constants, cache, positions, last=None, **masks):
        if last is not None:
            token_ids = tf.gather(token_ids, last, batch_dims=1)
        return tf.one_hot(token_ids, VOCABULARY), cache


def test_lengths_are_given_to_the_compiled_function():
    model, inputs = Echo(), np.array([[6, 2, 5], [1, 0, 4]])
    cases = {None: [2, 4], (3, 2): [5, 0], (1, 1): [6, 1]}
    for lengths, expected in cases.items():
        lengths = None if lengths is None else np.array(lengths)
        # By default the first row of the last case ends, which its `bos_id` makes a beginning.
        ids, _ = generate(model, inputs, "greedy", 2, lengths=lengths, bos_id=6, eos_id=6)
        ended = [[token, 5 if token == 6 else token] for token in expected]
        assert ids.numpy().tolist() == ended


@pytest.mark.filterwarnings("error")
def test_a_prompt_that_has_ended_is_a_warning(monkeypatch):
    """The model begins a new text after an end; a token that also begins texts is none."""
    monkeypatch.setattr(decoding, "run_compiled", lambda *_: None)
    rows = np.array([[6, 3, 5], [1, 4, 6]])
    wanted = "Encode prompts with `end=False`.* Received: a prompt that ends with {}."
    for ends, lengths, warned in (
        (3, None, 3),  # padding is skipped
        ([0, 6], [2, 3], 6),  # of several rows and ends
        (6, [3, 2], None),
        (6, [1, 2], None),  # a prompt of one token begins with it
        (-1, None, None),
    ):
        how = {"lengths": None if lengths is None else np.array(lengths), "eos_id": ends}
        if warned is None:
            generate(Echo(), rows, **how)
            continue
        with pytest.warns(UserWarning, match=wanted.format(warned)) as records:
            generate(Echo(), rows, **how)
        assert len(records) == 1 and records[0].filename == __file__
        generate(Echo(), rows, **{**how, "bos_id": warned})
    monkeypatch.setattr(Echo, "reads_prompt", False)
    generate(Echo(), rows, eos_id=[3, 6])  # sources keep their ends


def test_rows_of_different_lengths_are_padded(monkeypatch):
    """The id of padding in a row means the same in a batch as alone."""
    rows, expected = [[5, 6], [1, 4, 5], [2]], [[6, 6], [5, 5], [2, 2]]
    ragged = tf.ragged.constant(rows, dtype=tf.int64)
    for pad_id, expected in ((5, [[6, 6], [4, 4], [2, 2]]), (None, expected)):
        monkeypatch.setattr(Echo, "pad_id", pad_id)
        for row, texts in zip(rows, expected, strict=True):
            assert generate(Echo(), [row], "greedy", 2, eos_id=-1)[0].numpy().tolist() == [texts]
        run = tf.function(lambda rows: generate(Echo(), rows, "greedy", 2, eos_id=-1)[0])
        assert run(ragged).numpy().tolist() == expected
        for inputs in (rows, [np.array(row) for row in rows], ragged):
            ids, _ = generate(Echo(), inputs, "greedy", 2, eos_id=-1)
            assert ids.numpy().tolist() == expected
    for inputs, message in (
        ([[5, 6], []], "lists of different lengths from 1 on"),
        ([[5, 6], [0.5]], "must be integer token ids"),
        (tf.ragged.constant([[5], []], dtype=tf.int64), "lists of different lengths from 1 on"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(Echo(), inputs)
    with pytest.raises(ValueError, match="`lengths` must be None for rows of different lengths"):
        generate(Echo(), rows, lengths=[2, 3, 1])


LEFT = np.array([[5, 5, 6, 2], [1, 5, 5, 4], [5, 3, 5, 5]])  # 5 is padding


def decode_in(kind, ids, **arguments):
    """Decode two tokens eagerly, in a graph of any shape, or compiled by XLA."""
    compiled = kind == "xla"
    arguments |= {"eos_id": -1, "jit_compile": compiled}

    def run(ids, **more):
        return generate(Echo(), ids, "greedy", 2, **more, **arguments)[0]

    if kind == "eager":
        return run(ids).numpy().tolist()
    signature = None if compiled else [tf.TensorSpec((None, None), tf.int64)]
    run = tf.function(run, signature, autograph=False, jit_compile=compiled)
    return run(tf.constant(ids, tf.int64)).numpy().tolist()


@pytest.mark.parametrize("kind", slow_but(["graph"], ["graph", "eager", "xla"]))
def test_padding_anywhere_in_a_row_is_moved_behind_its_tokens(kind):
    assert decode_in(kind, LEFT) == [[2, 2], [4, 4], [3, 3]]


# Ids, lengths, and the tokens under XLA, which takes the nearest length, and padding for a token.
WITHOUT_TOKENS = {
    "padding": ([[6, 2], [5, 5]], None, [[2, 2], [5, 5]]),
    "no length": ([[6, 2], [1, 4]], [2, 0], [[2, 2], [1, 1]]),
    "too long": ([[6, 2]], [3], [[2, 2]]),
}


@pytest.mark.parametrize("name", slow_but(["padding"], WITHOUT_TOKENS))
def test_a_row_without_a_token_is_an_error_in_a_graph_too(name):
    ids, lengths, _ = WITHOUT_TOKENS[name]
    more = {} if lengths is None else {"lengths": tf.constant(lengths, tf.int64)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="`(inputs|lengths)` must be"):
        decode_in("graph", ids, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["padding", "no length"])
def test_xla_drops_the_check_of_lengths_and_clips_them(name):
    ids, lengths, expected = WITHOUT_TOKENS[name]
    more = {} if lengths is None else {"lengths": tf.constant(lengths, tf.int64)}
    assert decode_in("xla", ids, **more) == expected


@pytest.mark.slow
def test_a_model_decodes_sources_that_are_padded_on_the_left_as_others():
    model, inputs, _ = model_of("encoder_decoder")
    left = np.stack([np.roll(row, np.sum(row == 0)) for row in inputs])
    assert (left[:, -1] != 0).all()
    expected, _ = generate(model, inputs, "greedy", 3)
    run = tf.function(lambda ids: generate(model, ids, "greedy", 3)[0])
    np.testing.assert_array_equal(run(tf.constant(left)), expected)


@pytest.mark.parametrize("lengths", [[1], [0, 2], [4, 1], [1.0, 2.0], [[1, 2]]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ValueError, match="`lengths` must be .* Received: lengths="):
        generate(Echo(), np.array([[6, 2, 5], [1, 0, 4]]), lengths=lengths)
