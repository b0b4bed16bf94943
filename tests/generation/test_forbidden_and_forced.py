"""Forbidden and forced tokens, by hand over log-probabilities."""

import numpy as np
import pytest
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

from keras_attn.generation import Beam, Forbidden, Forced, Greedy, NoRepeat, Sample, Speculative

FORBIDDEN = [4, 5]
MAX_LENGTH = 5
# Without prompts, and with prompts of several lengths.
SOURCES, MODEL = Markov(0), Markov(1, PROMPTS)


def normalised(log_probs):
    return log_probs - np.log(np.exp(log_probs).sum())


def without(log_probs, renormalize):
    """Return log-probabilities without the forbidden tokens, whose mass is kept or spread."""

    def changed(row, tokens):
        is_forbidden = np.isin(range(VOCABULARY), FORBIDDEN)
        allowed = np.where(is_forbidden, -np.inf, log_probs(row, tokens))
        return normalised(allowed) if renormalize else allowed

    return changed


def forced(log_probs, first_id, last_id, min_length, prompt_length):
    def changed(row, tokens):
        allowed, only = np.array(log_probs(row, tokens)), np.full(VOCABULARY, -np.inf)
        if len(tokens) < min_length:
            allowed[EOS] = -np.inf
        is_first = prompt_length in (None, np.count_nonzero(PROMPTS[row]))
        for step, token in ((0, first_id if is_first else None), (MAX_LENGTH - 1, last_id)):
            if len(tokens) == step and token is not None:
                only[token] = 0.0
                return only
        return normalised(allowed)

    return changed


def check_searches(model, wrap, log_probs):
    """Check each wrapped search against loops."""
    inputs = PROMPTS if model.reads_prompt else np.array([[1]])
    for strategy, search in {
        Beam(3, 0.6): lambda p, row, length: beam_by_hand(p, row, 3, 0.6, length),
        Speculative(model, 2): greedy_by_hand,
        Greedy(): greedy_by_hand,
    }.items():
        ids, scores = decode_eagerly(model, inputs, wrap(strategy), MAX_LENGTH)
        for row in range(len(inputs)):
            tokens, score = search(log_probs, row, MAX_LENGTH)
            assert ids[row].tolist() == [*tokens, *[0] * (MAX_LENGTH - len(tokens))]
            np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)
    plain = decode_eagerly(model, inputs, "greedy", MAX_LENGTH)[0]
    assert not np.array_equal(decode_eagerly(model, inputs, wrap(Greedy()), MAX_LENGTH)[0], plain)


@pytest.mark.parametrize("model, renormalize", [(SOURCES, True), (MODEL, False)])
def test_forbidden_tokens_lose_or_keep_their_mass(model, renormalize):
    changed = without(model.log_probs, renormalize)
    check_searches(model, lambda s: Forbidden(s, FORBIDDEN, renormalize), changed)


def test_kept_mass_changes_what_a_beam_search_finds():
    texts = [
        [
            beam_by_hand(without(Markov(seed).log_probs, renormalize), 0, 3, 0.6, MAX_LENGTH)[0]
            for seed in range(9)
        ]
        for renormalize in (True, False)
    ]
    assert texts[0] != texts[1]


def test_sampling_draws_no_forbidden_token_and_its_score_is_normalised():
    scores = []
    for renormalize in (True, False):
        strategy = Forbidden(Sample(seed=3, temperature=2.0), FORBIDDEN, renormalize)
        ids, score = decode_eagerly(MODEL, PROMPTS, strategy, MAX_LENGTH)
        assert not np.isin(ids, FORBIDDEN).any()
        scores.append(score)
    np.testing.assert_allclose(*scores, rtol=1e-4)


@pytest.mark.parametrize(
    "model, arguments",
    [
        (SOURCES, {"first_id": 6, "min_length": MAX_LENGTH, "prompt_length": 1}),
        (MODEL, {"first_id": 6, "last_id": EOS, "min_length": 3, "prompt_length": 1}),
    ],
)
def test_tokens_are_forced_at_the_ends(model, arguments):
    """Targets are forced to begin whatever their sources' lengths are."""
    known = {"last_id": None, **arguments}
    if not model.reads_prompt:
        known["prompt_length"] = None
    changed = forced(model.log_probs, **known)
    check_searches(model, lambda s: Forced(s, **arguments), changed)


@pytest.mark.parametrize("model, size", [(SOURCES, 1), (MODEL, 2)])
def test_no_sequence_of_tokens_repeats(model, size):
    """A model without a prompt may count the token before its first one."""

    def changed(row, tokens):
        before = [token for token in PROMPTS[row] if token] if model.reads_prompt else [BOS]
        text, allowed = [*before, *tokens], np.array(model.log_probs(row, tokens))
        known = [text[i : i + size] for i in range(len(text) - size + 1)]
        for token in range(VOCABULARY):
            if [*text[len(text) - size + 1 :], token] in known:
                allowed[token] = -np.inf
        return normalised(allowed)

    check_searches(model, lambda s: NoRepeat(s, size, counts_bos=True), changed)


def test_by_default_the_token_before_a_target_may_be_generated():
    model = Markov(0)
    model.logits = np.eye(VOCABULARY, dtype="float32")  # it repeats the last token
    for counts_bos in (False, True):
        strategy = NoRepeat("greedy", 1, counts_bos=counts_bos)
        ids, _ = decode_eagerly(model, [[1]], strategy, 1)
        assert (ids[0, 0] == BOS) == (not counts_bos)


def test_a_forced_token_may_be_a_forbidden_one():
    strategy = Forbidden(Forced("greedy", first_id=4), [4])
    ids, _ = decode_eagerly(MODEL, PROMPTS, strategy, 3)
    assert (ids[:, 0] == 4).all() and (ids[:, 1:] != 4).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Forbidden("greedy", 4), "`token_ids` must be a list of ints."),
        (lambda: Forbidden("greedy", [4, -1]), "Received: token_ids=-1"),
        (lambda: Forced("greedy", first_id=-1), "Received: first_id=-1"),
        (lambda: Forced("greedy", min_length=0.5), "Received: min_length=0.5"),
        (lambda: Forced("greedy", prompt_length=0), "Received: prompt_length=0"),
        (lambda: Forbidden("greedy", [7]), "not all, of the ids from 0 to 6.*token_ids=\\[7\\]"),
        (lambda: Forbidden("greedy", range(7)), "a list of ints"),
        (lambda: Forbidden("greedy", [*range(7)]), "not all, of the ids"),
        (lambda: NoRepeat("greedy", 0), "Received: size=0"),
        (lambda: Forced("greedy", min_length=3), "`min_length` must not be above `max_length`"),
        (lambda: Forced("greedy", first_id=7), "`first_id` must be below 7"),
        (lambda: Forced("greedy", last_id=7), "`last_id` must be below 7"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        decode_eagerly(MODEL, PROMPTS, make(), 2)


def test_the_only_token_is_the_first_and_the_last():
    for arguments in ({"first_id": 5}, {"last_id": 5}, {"first_id": 5, "last_id": 5}):
        ids, _ = decode_eagerly(MODEL, PROMPTS, Forced("greedy", **arguments), 1)
        assert ids.tolist() == [[5]] * len(PROMPTS)
    with pytest.raises(
        ValueError, match="`last_id` must be 5, the only token. Received: last_id=4"
    ):
        decode_eagerly(MODEL, PROMPTS, Forced("greedy", 5, 4), 1)


def test_wrappers_are_compared_and_saved_by_their_arguments():
    made = Forbidden(Beam(2), [4], False), Forced("greedy", 3, min_length=2), NoRepeat("beam", 3)
    for strategy in made:
        again = type(strategy).from_config(strategy.get_config())
        assert again == strategy and repr(again) == repr(strategy)
    assert Forbidden("greedy", [4]) != Forbidden("greedy", [5])
