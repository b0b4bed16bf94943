"""Beam search by Hugging Face's rules, against the same rules as loops in Python."""

import numpy as np
import pytest
from beam_rules import hugging_face_search
from decoding_models import EOS, VOCABULARY, Markov, decode_eagerly

from keras_attn.generation import Beam

MAX_LENGTH = 7


def search(log_probs, length_penalty, early_stopping, ends=(EOS,)):
    return hugging_face_search(log_probs, 2, length_penalty, early_stopping, MAX_LENGTH, ends)


# Length penalties and seeds of models, for which the rules find different hypotheses.
CASES = [(0.0, 0), (0.6, 2), (1.0, 6), (2.0, 5), (2.0, 6)]


@pytest.mark.parametrize(
    "early_stopping, ends", [(False, (1, EOS)), (True, (EOS,)), ("never", (EOS,))]
)
def test_search_equals_the_loop(early_stopping, ends):
    for length_penalty, seed in CASES:
        model = Markov(seed)
        expected, score = search(model.log_probs, length_penalty, early_stopping, ends)
        strategy = Beam(2, length_penalty, "power", early_stopping)
        ids, scores = decode_eagerly(model, [[1]], strategy, MAX_LENGTH, ends)
        assert ids[0].tolist() == expected
        np.testing.assert_allclose(scores[0], score, rtol=1e-5)


def test_the_rules_differ():
    """The test above could not fail for a rule that finds the same as another one."""
    by_rule = [
        [search(Markov(seed).log_probs, penalty, rule)[0] for penalty, seed in CASES]
        for rule in (False, True, "never")
    ]
    assert all(by_rule[i] != by_rule[j] for i, j in ((0, 1), (0, 2), (1, 2)))


def test_the_exact_search_by_powers_finds_the_best_of_all():
    for seed in range(3):
        log_probs = Markov(seed).log_probs
        ids, scores = decode_eagerly(Markov(seed), [[1]], Beam(50, 1.0, "power"), 3)
        hypotheses = [((), 0.0)]
        best = -np.inf
        for length in (1, 2, 3):
            hypotheses = [
                ((*tokens, token), score + log_probs(0, tokens)[token])
                for tokens, score in hypotheses
                for token in range(VOCABULARY)
            ]
            ended = [score for tokens, score in hypotheses if tokens[-1] == EOS or length == 3]
            best = max(best, max(ended) / length)
            hypotheses = [(tokens, score) for tokens, score in hypotheses if tokens[-1] != EOS]
        np.testing.assert_allclose(scores[0], best, rtol=1e-5)


def test_errors():
    with pytest.raises(ValueError, match="Received: normalization='length'"):
        Beam(2, 1.0, "length")
    with pytest.raises(ValueError, match="Received: early_stopping=1"):
        Beam(early_stopping=1)  # equal to True, but another rule
    with pytest.raises(ValueError, match="Received: early_stopping='always'"):
        Beam(2, 1.0, "power", "always")
