"""Forbidden and forced tokens, by hand over log-probabilities computed without a cache."""

import numpy as np
import pytest
from decoding_models import (
    EOS,
    VOCABULARY,
    beam_by_hand,
    decode_eagerly,
    greedy_by_hand,
    model_of,
)

from keras_attn.generation import Beam, Forbidden, Forced, Greedy, NoRepeat, Sample, Speculative

FORBIDDEN = [4, 5]
MAX_LENGTH = 5


def without(log_probs, renormalize):
    """Return log-probabilities without the forbidden tokens, whose mass is kept or spread."""

    def changed(row, tokens):
        found = np.where(np.isin(range(VOCABULARY), FORBIDDEN), -np.inf, log_probs(row, tokens))
        return found - np.log(np.exp(found).sum()) if renormalize else found

    return changed


def forced(log_probs, first, last, min_length):
    def changed(row, tokens):
        found, only = np.array(log_probs(row, tokens)), np.full(VOCABULARY, -np.inf)
        if len(tokens) < min_length:
            found[EOS] = -np.inf
        for step, token in ((0, first), (MAX_LENGTH - 1, last)):
            if len(tokens) == step and token is not None:
                only[token] = 0.0
                return only
        return found - np.log(np.exp(found).sum())

    return changed


@pytest.mark.parametrize(
    "kind, renormalize",
    [("causal", True), pytest.param("encoder_decoder", False, marks=pytest.mark.slow)],
)
def test_forbidden_tokens_lose_or_keep_their_mass(kind, renormalize):
    model, inputs, log_probs = model_of(kind)
    plain, _ = decode_eagerly(model, inputs, "greedy", MAX_LENGTH)
    assert np.isin(plain, FORBIDDEN).any()
    changed = without(log_probs, renormalize)
    for strategy, search in {
        Greedy(): greedy_by_hand,
        Speculative(model, 2): greedy_by_hand,
        Beam(3, 0.6): lambda *arguments: beam_by_hand(*arguments[:2], 3, 0.6, arguments[2]),
    }.items():
        strategy = Forbidden(strategy, FORBIDDEN, renormalize)
        ids, scores = decode_eagerly(model, inputs, strategy, MAX_LENGTH)
        for row in range(len(inputs)):
            tokens, score = search(changed, row, MAX_LENGTH)
            assert ids[row].tolist() == [*tokens, *[0] * (MAX_LENGTH - len(tokens))]
            np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)


def test_kept_mass_changes_what_a_beam_search_finds():
    model, inputs, log_probs = model_of("causal")
    found = [
        beam_by_hand(without(log_probs, renormalize), row, 3, 0.6, MAX_LENGTH)[0]
        for renormalize in (True, False)
        for row in range(len(inputs))
    ]
    assert found[:3] != found[3:]


def test_sampling_draws_no_forbidden_token_and_its_score_is_normalised():
    model, inputs, _ = model_of("causal")
    scores = []
    for renormalize in (True, False):
        strategy = Forbidden(Sample(seed=3, temperature=2.0), FORBIDDEN, renormalize)
        ids, score = decode_eagerly(model, inputs, strategy, MAX_LENGTH)
        assert not np.isin(ids, FORBIDDEN).any()
        scores.append(score)
    np.testing.assert_allclose(*scores, rtol=1e-4)


@pytest.mark.parametrize(
    "first, last, min_length",
    [(6, 5, 2), pytest.param(None, EOS, 3, marks=pytest.mark.slow)],
)
def test_tokens_are_forced_at_the_ends(first, last, min_length):
    model, inputs, log_probs = model_of("encoder_decoder")
    changed = forced(log_probs, first, last, min_length)
    for strategy, search in {
        Greedy(): greedy_by_hand,
        Beam(3, 0.6): lambda *arguments: beam_by_hand(*arguments[:2], 3, 0.6, arguments[2]),
    }.items():
        strategy = Forced(strategy, first, last, min_length)
        ids, scores = decode_eagerly(model, inputs, strategy, MAX_LENGTH)
        for row in range(len(inputs)):
            tokens, score = search(changed, row, MAX_LENGTH)
            assert ids[row].tolist() == [*tokens, *[0] * (MAX_LENGTH - len(tokens))]
            np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "kind", ["causal", pytest.param("encoder_decoder", marks=pytest.mark.slow)]
)
def test_no_sequence_of_two_tokens_repeats(kind):
    model, inputs, log_probs = model_of(kind)
    size = 2

    def changed(row, tokens):
        prompt = [token for token in inputs[row] if token] if kind == "causal" else []
        text, found = [*prompt, *tokens], np.array(log_probs(row, tokens))
        windows = [text[i : i + size] for i in range(len(text) - size + 1)]
        for token in range(VOCABULARY):
            if [*text[len(text) - size + 1 :], token] in windows:
                found[token] = -np.inf
        return found - np.log(np.exp(found).sum())

    plain, _ = decode_eagerly(model, inputs, "greedy", MAX_LENGTH)
    for strategy, search in {
        Greedy(): greedy_by_hand,
        Speculative(model, 2): greedy_by_hand,
        Beam(2, 0.6): lambda *arguments: beam_by_hand(*arguments[:2], 2, 0.6, arguments[2]),
    }.items():
        ids, scores = decode_eagerly(model, inputs, NoRepeat(strategy, size), MAX_LENGTH)
        for row in range(len(inputs)):
            tokens, score = search(changed, row, MAX_LENGTH)
            assert ids[row].tolist() == [*tokens, *[0] * (MAX_LENGTH - len(tokens))]
            np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)
    assert not np.array_equal(decode_eagerly(model, inputs, NoRepeat("greedy", size), 5)[0], plain)


def test_a_forced_token_may_be_a_forbidden_one():
    model, inputs, _ = model_of("causal")
    ids, _ = decode_eagerly(model, inputs, Forbidden(Forced("greedy", first_id=4), [4]), 3)
    assert (ids[:, 0] == 4).all() and (ids[:, 1:] != 4).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Forbidden("greedy", 4), "`token_ids` must be a list of ints."),
        (lambda: Forbidden("greedy", [4, -1]), "Received: token_ids=-1"),
        (lambda: Forced("greedy", first_id=-1), "Received: first_id=-1"),
        (lambda: Forced("greedy", min_length=0.5), "Received: min_length=0.5"),
        (lambda: Forbidden("greedy", [7]), "not all, of the ids from 0 to 6.*token_ids=\\[7\\]"),
        (lambda: Forbidden("greedy", range(7)), "a list of ints"),
        (lambda: Forbidden("greedy", [*range(7)]), "not all, of the ids"),
        (lambda: NoRepeat("greedy", 0), "Received: size=0"),
        (lambda: Forced("greedy", min_length=2), "`min_length` must be below `max_length`"),
        (lambda: Forced("greedy", first_id=7), "`first_id` must be below 7"),
        (lambda: Forced("greedy", last_id=7), "`last_id` must be below 7"),
    ],
)
def test_errors(make, message):
    model, inputs, _ = model_of("causal")
    with pytest.raises(ValueError, match=message):
        decode_eagerly(model, inputs, make(), 2)


def test_the_only_token_is_the_first_and_the_last():
    model, inputs, _ = model_of("causal")
    for arguments in ({"first_id": 5}, {"last_id": 5}, {"first_id": 5, "last_id": 5}):
        ids, _ = decode_eagerly(model, inputs, Forced("greedy", **arguments), 1)
        assert ids.tolist() == [[5]] * len(inputs)
    with pytest.raises(
        ValueError, match="`last_id` must be 5, the only token. Received: last_id=4"
    ):
        decode_eagerly(model, inputs, Forced("greedy", 5, 4), 1)


def test_wrappers_are_compared_and_saved_by_their_arguments():
    made = Forbidden(Beam(2), [4], False), Forced("greedy", 3, min_length=2), NoRepeat("beam", 3)
    for strategy in made:
        again = type(strategy).from_config(strategy.get_config())
        assert again == strategy and repr(again) == repr(strategy)
    assert Forbidden("greedy", [4]) != Forbidden("greedy", [5])
