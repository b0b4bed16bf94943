"""Constrained decoding, its tables, and several end tokens."""

import re
import types

import keras
import numpy as np
import pytest
import recipe_runs
from decoding_models import (
    BOS,
    EOS,
    PROMPTS,
    VOCABULARY,
    Markov,
    beam_by_hand,
    decode_eagerly,
    greedy_by_hand,
)

from keras_attn import text
from keras_attn.generation import (
    Beam,
    Constrained,
    Greedy,
    NoRepeat,
    Sample,
    Speculative,
    allow_texts,
    generate,
)
from keras_attn.generation.tokens import end_tokens
from keras_attn.text.tokenizers.byte_level_bpe import LETTERS
from recipes.translate.dates import iso_dates
from recipes.translate.training import TranslationRun

MODEL = Markov(1, PROMPTS)
ALL = np.zeros((1, VOCABULARY), int)
# An odd number of tokens 4, then any number of 5 or 6, then the end.
ODD = np.full((3, VOCABULARY), -1)
ODD[0, 4], ODD[1, 4], ODD[1, [5, 6]], ODD[1, EOS] = 1, 0, 2, 2
ODD[2, [5, 6]], ODD[2, EOS] = 2, 2
# Whatever the other tokens are, 5 may follow an even number of tokens 4, and 6 an odd number.
PARITY = np.full((2, VOCABULARY), -1)
PARITY[0, [4, 5, EOS]], PARITY[1, [4, 6]] = [1, 0, 0], [0, 1]
# Without repetition 4 5 and 6 5 are dead ends; 5 6 and 6 may end.
MAZE = np.full((4, VOCABULARY), -1)
MAZE[0, [4, 5, 6]], MAZE[1, 4], MAZE[1, 5], MAZE[2, 6], MAZE[3, [5, EOS]] = [1, 2, 3], 1, 1, 3, 2
ODD_PATTERN = re.compile("4(44)*[56]*(3|$)")


def restricted(log_probs, table):
    """Return `log_probs(row, tokens)` with the log-probabilities among the allowed tokens."""

    def among_allowed(row, tokens):
        state = 0
        for token in tokens:
            state = table[state, token]
        scores = np.where(table[state] >= 0, log_probs(row, tuple(tokens)), -np.inf)
        return scores - np.log(np.exp(scores).sum())

    return among_allowed


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=repr)
def test_a_table_that_allows_all_changes_nothing(strategy):
    expected = decode_eagerly(MODEL, PROMPTS, strategy, 3)
    constrained = decode_eagerly(MODEL, PROMPTS, Constrained(strategy, ALL), 3)
    for a, b in zip(expected, constrained, strict=True):
        np.testing.assert_array_equal(a, b)


def test_greedy_takes_the_most_likely_allowed_token():
    ids, scores = decode_eagerly(MODEL, PROMPTS, Constrained("greedy", ODD), 5)
    for row in range(len(PROMPTS)):
        tokens, score = greedy_by_hand(restricted(MODEL.log_probs, ODD), row, 5)
        assert ids[row].tolist() == tokens
        np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)
        assert ODD_PATTERN.match("".join(map(str, tokens)))


@pytest.mark.parametrize(
    ("table", "ends"), [(PARITY, (EOS,)), (np.zeros_like(PARITY), (BOS, EOS, 5, 6))]
)
def test_beams_equal_the_textbook_with_states_and_with_several_ends(table, ends):
    for seed in range(3):
        model = Markov(seed)
        ids, scores = decode_eagerly(model, [[1]], Constrained(Beam(3, 4.0), table), 5, ends)
        tokens, score = beam_by_hand(restricted(model.log_probs, table), 0, 3, 4.0, 5, ends)
        assert ids[0].tolist() == [*tokens, *[0] * (5 - len(tokens))]
        np.testing.assert_allclose(scores[0], score, rtol=1e-4)


def in_the_maze(log_probs):
    """Return the log-probabilities without repetition: all -inf at a dead end and behind it."""

    def among_allowed(row, tokens):
        state = 0
        for token in tokens:
            state = MAZE[state, token] if state >= 0 else -1
        is_allowed = (MAZE[state] >= 0) & (state >= 0) & ~np.isin(range(VOCABULARY), tokens)
        scores = np.where(is_allowed, log_probs(row, tokens), -np.inf)
        return scores - np.log(np.exp(scores).sum()) if is_allowed.any() else scores

    return among_allowed


def decode_in_the_maze(model, strategy, rows=1):
    strategy = NoRepeat(Constrained(strategy, MAZE), 1)
    return decode_eagerly(model, [[1]] * rows, strategy, 4)


def test_a_beam_search_drops_dead_ends_and_keeps_the_other_hypotheses():
    for seed in (0, 2):
        model = Markov(seed)
        ids, scores = decode_in_the_maze(model, Beam(3))
        tokens, score = beam_by_hand(in_the_maze(model.log_probs), 0, 3, 0.6, 4)
        assert ids[0].tolist() == [*tokens, *[0] * (4 - len(tokens))] and np.isfinite(score)
        np.testing.assert_allclose(scores[0], score, rtol=1e-4)
    forever = Constrained(Beam(2), np.where(np.arange(VOCABULARY) == 4, 0, -1)[None])
    ids, scores = decode_eagerly(Markov(0), [[1]], NoRepeat(forever, 1), 4)
    assert ids.tolist() == [[0] * 4] and scores[0] == -np.inf


def test_a_row_ends_at_a_dead_end():
    is_finite = set()
    for seed in (0, 2):
        model = Markov(seed)
        tokens, score = greedy_by_hand(in_the_maze(model.log_probs), 0, 4)
        is_finite.add(np.isfinite(score))
        for strategy in (Greedy(), Speculative(model, 2)):
            ids, scores = decode_in_the_maze(model, strategy)
            assert ids[0].tolist() == tokens
            np.testing.assert_allclose(scores[0], score, rtol=1e-4)
    assert is_finite == {True, False}


TRUNCATED = {"top_k": 3, "top_p": 0.99, "min_p": 0.01, "typical_p": 0.99}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, TRUNCATED], ids=len)
def test_a_sampled_row_ends_at_a_dead_end(arguments):
    model, has_ended = Markov(0), set()
    log_probs, sample = in_the_maze(model.log_probs), Sample(5.0, seed=0, **arguments)
    for strategy in (sample, Speculative(model, 2, sample)):
        for row, score in zip(*decode_in_the_maze(model, strategy, rows=30), strict=True):
            end = row.tolist().index(0)
            *written, last = row[:end].tolist()
            assert not row[end:].any() and log_probs(0, written)[last] > -np.inf
            assert (last == EOS) == np.isfinite(score)
            assert last == EOS or not np.isfinite(log_probs(0, [*written, last])).any()
            has_ended.add(last == EOS)
    assert has_ended == {True, False}


def test_several_end_tokens_end_greedy_decoding():
    ends = (EOS, 5, 6)
    ids, _ = decode_eagerly(MODEL, PROMPTS, Greedy(), 5, ends)
    for row in range(len(PROMPTS)):
        assert ids[row].tolist() == greedy_by_hand(MODEL.log_probs, row, 5, ends)[0]
    with pytest.raises(ValueError, match="a list of at least one. Received: eos_id="):
        generate(MODEL, PROMPTS, eos_id=[])
    assert end_tokens(np.array([5, EOS])) == (EOS, 5) and end_tokens(np.array(5)) == (5,)
    for wrong in ([[3, 4]], [0.5], [-2]):
        with pytest.raises(ValueError, match="`eos_id` must be an integer of at least -1"):
            end_tokens(np.array(wrong))


def spelled(table, tokenizer, length, start=0):
    """Yield the texts of all token sequences that a table allows."""
    for token in np.flatnonzero(table[start] >= 0):
        if token == EOS:
            yield ""
        elif length:
            (piece,) = tokenizer.decode_as_strings([[token]])
            for rest in spelled(table, tokenizer, length - 1, table[start, token]):
                yield piece + rest


def test_a_table_of_texts_allows_these_texts_only():
    texts = ["ab", "abc", "b", "cab"]
    tokenizer = text.Characters("cabx")
    table = allow_texts(texts, tokenizer)
    assert sorted(spelled(table, tokenizer, 4)) == texts
    assert len(allow_texts([*texts, "xab"], tokenizer)) == len(table)  # shares the end of "cab"
    with pytest.raises(ValueError, match="cannot spell a text. Received: 'ay'"):
        allow_texts(["ab", "ay"], tokenizer)
    with pytest.raises(ValueError, match="a list of strings. Received: texts='ab'"):
        allow_texts("ab", tokenizer)
    with pytest.raises(ValueError, match="at least one string"):
        allow_texts([], tokenizer)


def test_subwords_may_spell_a_text_in_every_way():
    days = ["10 12", "12 10", "10 10"]
    tokenizer = text.SentencePiece.train(days * 9, vocabulary_size=14, model_type="bpe")
    table = allow_texts(days, tokenizer)
    pieces = {tokenizer.decode_as_strings([[v]])[0] for v in np.flatnonzero(table[0] >= 0)}
    assert {"1", "10"} <= pieces
    for day in days:
        for ids in tokenizer.encode_as_lists([day]):
            state = 0
            for token in [*ids, EOS]:
                state = table[state, token]
                assert state >= 0


def test_a_space_is_dropped_only_where_the_tokenizer_does():
    tokenizer = text.Characters(" 0123456789")
    table = allow_texts([" 5", "10"], tokenizer)
    assert sorted(spelled(table, tokenizer, 3)) == [" 5", "10"]


def test_tokens_may_be_parts_of_a_character():
    vocabulary = {token: i for i, token in enumerate([*LETTERS, "æĹ", "<end>"])}  # two bytes of 日
    special = {"special_tokens": {"<end>": 257}, "eos_id": 257}
    tokenizer = text.ByteLevelBPE(vocabulary, ["æ Ĺ"], **special)
    table = allow_texts(["日"], tokenizer)
    first = [bytes([0xE6]), bytes([0xE6, 0x97])]
    pieces = tokenizer.tokens(np.flatnonzero(table[0] >= 0)).numpy().tolist()
    assert sorted(pieces) == first
    with pytest.raises(ValueError, match="`tokenizer` must be one that has an end token"):
        allow_texts(["a"], text.ByteLevelBPE(vocabulary, []))


@pytest.fixture(scope="module")
def dates():
    """A table of all days, and a tokenizer."""
    tokenizer = text.Characters("0123456789-/. abcdefghijklmnopqrstuvwxyz")
    return allow_texts(iso_dates(), tokenizer), tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=repr)
def test_untrained_models_write_dates_in_iso_8601(dates, strategy):
    table, tokenizer = dates
    days, model = iso_dates(), Markov(0, size=tokenizer.vocabulary_size)
    ids, _ = decode_eagerly(model, [[5], [6]], Constrained(strategy, table), 12)
    assert set(tokenizer.decode_as_strings(ids)) <= set(days)
    ids, _ = decode_eagerly(model, [[5], [6]], strategy, 1)
    assert not set(tokenizer.decode_as_strings(ids)) & {day[0] for day in days}


@pytest.mark.slow
def test_the_recipe_of_dates_restricts_its_translations(dates, capsys, tmp_path):
    _, tokenizer = dates
    run = TranslationRun.__new__(TranslationRun)
    run.options = recipe_runs.parse("translate", "--out", tmp_path, "--constrained")
    run.corpus = types.SimpleNamespace(tokens=types.SimpleNamespace(tokenizer=tokenizer))
    assert run._strategy() == Constrained("greedy", dates[0])
    error = recipe_runs.error_of(capsys, "translate", "--data-dir", tmp_path, "--constrained")
    assert "--constrained is for the dates" in error


def test_the_table_of_dates_is_small(dates):
    table, tokenizer = dates
    assert table.shape == (30, tokenizer.vocabulary_size)
    for wrong in ("1950-02-30", "1951-02-29", "2051-01-01", "1950-13-01", "50-01-01"):
        state = 0
        for token in [*tokenizer.encode_as_lists([wrong])[0], EOS]:
            state = table[state, token] if state >= 0 else -1
        assert state < 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0.5]], "integers of shape"),
        ([0, 1], "integers of shape"),
        ([[1, 0]], "integers of shape"),
        ([[-2, 0]], "integers of shape"),
        ([[0, 1], [-1, -1]], r"no token is allowed in the states \[1\]"),
    ],
)
def test_wrong_tables_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        Constrained("greedy", table)


def test_a_table_has_a_column_for_each_token():
    with pytest.raises(ValueError, match=f"a table of {VOCABULARY} columns"):
        decode_eagerly(MODEL, PROMPTS, Constrained("greedy", [[0, 0]]), 3)


def test_constrained_strategies_are_compared_and_saved_by_their_arguments():
    strategy = Constrained(Beam(3), ODD)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(strategy))
    assert again == strategy and hash(again) == hash(strategy)
    assert repr(again) == "Constrained(Beam(beams=3), table of 3 states)"
    others = [Constrained(Beam(2), ODD), Constrained(Beam(3), ODD[:, ::-1]), Beam(3)]
    assert len({strategy, *others}) == 4
