"""The distribution that `Sample` draws from, against loops in float64 over the same definitions."""

import numpy as np
import pytest
from decoding_models import PROMPTS, Markov, decode_eagerly
from keras import ops

from keras_attn.generation import Constrained, Sample
from keras_attn.generation.distributions import draw, log_sum_exp
from keras_attn.generation.loop import read_inputs
from keras_attn.generation.processors import RepetitionPenalty

ROWS, VOCABULARY = 5, 13


@pytest.fixture(scope="module")
def logits():
    return np.random.default_rng(0).normal(0, 2, (ROWS, VOCABULARY)).astype("float32")


def test_the_sum_of_far_logits_does_not_overflow():
    logits = np.random.default_rng(7).normal(scale=100.0, size=(2, 3, 19)).astype("float32")
    top = logits.max(axis=-1, keepdims=True)
    expected = np.logaddexp.reduce(logits.astype("float64"), axis=-1, keepdims=True) - top
    assert logits.max() > 90  # exp(90) is no float32
    np.testing.assert_allclose(ops.convert_to_numpy(log_sum_exp(logits, top)), expected, atol=1e-6)


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def truncated(logits, temperature=1.0, top_k=None, top_p=None, min_p=None, typical_p=None):
    """Compute one row's distribution: each step forbids tokens and normalises the others."""
    logits = logits.astype("float64") / temperature
    if top_k is not None:
        for token in sorted(range(len(logits)), key=lambda v: -logits[v])[top_k:]:
            logits[token] = -np.inf
    if top_p is not None:
        p, mass = softmax(logits), 0.0
        for token in sorted(range(len(p)), key=lambda v: -p[v]):
            if mass >= top_p:
                logits[token] = -np.inf
            mass += p[token]
    if min_p is not None:
        p = softmax(logits)
        logits[p < min_p * p.max()] = -np.inf
    if typical_p is not None:
        p, mass = softmax(logits), 0.0
        entropy = -sum(x * np.log(x) for x in p if x > 0)
        possible = [v for v in range(len(p)) if p[v] > 0]
        for token in sorted(possible, key=lambda v: abs(-np.log(p[v]) - entropy)):
            if mass >= typical_p:
                logits[token] = -np.inf
            mass += p[token]
    return softmax(logits)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"typical_p": 0.3},
        {"typical_p": 0.9},
        {"temperature": 1.7, "top_k": 7, "top_p": 0.8, "min_p": 0.1, "typical_p": 0.6},
        {"temperature": 0.6, "typical_p": 0.5, "top_k": 5},
    ],
)
def test_the_distribution_equals_the_definitions(logits, arguments):
    probabilities, logarithms = Sample(**arguments).distribution(logits)
    expected = np.stack([truncated(row, **arguments) for row in logits])
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(np.exp(logarithms), expected, atol=1e-6)
    if arguments:
        assert (expected == 0).any()


@pytest.mark.parametrize("arguments", [{}, {"top_k": 5}, {"top_p": 0.9, "min_p": 0.1}])
def test_extreme_temperatures_draw_the_likeliest_token_or_any(logits, arguments):
    """Also of large logits, and with a forbidden token."""
    logits = np.stack([logits[0], 1e6 * logits[1], np.where(logits[0] < 0, -np.inf, logits[0])])
    for temperature in (5e-324, 1e-38, 1e-20):
        p, logarithms = Sample(temperature, **arguments).distribution(logits)
        expected = np.eye(logits.shape[1])[logits.argmax(axis=1)]
        np.testing.assert_array_equal(p, expected)
        assert (np.max(logarithms, axis=1) == 0).all()
    p = np.asarray(Sample(float("inf")).distribution(logits)[0])
    allowed = logits > -np.inf
    np.testing.assert_allclose(p, allowed / allowed.sum(axis=1, keepdims=True), rtol=1e-6)


def test_the_temperature_comes_before_the_truncations(logits):
    """A higher temperature leaves more tokens above the same threshold."""
    cold, warm = (
        np.count_nonzero(Sample(temperature=t, min_p=0.1).distribution(logits)[0]) for t in (1, 3)
    )
    assert warm > cold


def test_typical_sampling_may_forbid_the_most_likely_token():
    """One token of 0.4 among six of 0.1: the typical ones are rarer than the likeliest."""
    p = np.array([[0.4, *[0.1] * 6]], "float32")
    probabilities = ops.convert_to_numpy(Sample(typical_p=0.5).distribution(np.log(p))[0])[0]
    assert probabilities[0] == 0 and np.count_nonzero(probabilities) == 6  # ties stay together


def test_drawing_never_returns_a_token_of_probability_zero():
    p = np.array([[0, 0.5, 0, 0.25, 0], [0.25, 0, 0, 0, 0.5]], "float32")
    for number, expected in ((0.0, [1, 0]), (0.7, [3, 4]), (1 - 2**-24, [3, 4])):
        tokens, probability = draw(p, np.full(2, number, "float32"))
        assert ops.convert_to_numpy(tokens).tolist() == expected
        wanted = [p[i, t] / 0.75 for i, t in enumerate(expected)]
        np.testing.assert_allclose(probability, wanted, rtol=1e-6)


def test_each_step_draws_a_number_of_its_own():
    model = Markov(0)
    model.logits = np.zeros_like(model.logits)  # all tokens are equally likely
    prompts = np.ones((5, 1), "int32")
    ids, _ = decode_eagerly(model, prompts, Sample(seed=0), 16, ends=(-1,))
    assert all(len(set(row)) > 2 for row in ids.tolist())


def test_a_penalty_counts_a_token_once_and_leaves_padding_out(logits):
    prompts = np.array([[5, 6, 5], [4, 0, 0]], "int32")
    generated = np.array([6, 12], "int32")
    penalty = RepetitionPenalty(1.5)

    class Model:
        reads_prompt = True

    inputs = read_inputs(ops.convert_to_tensor(prompts), None, 0)
    state = penalty.start(Model, inputs, VOCABULARY)
    state = penalty.advance(state, ops.convert_to_tensor(generated))
    penalised = ops.convert_to_numpy(penalty.apply(logits[:2], state))
    for row, seen in enumerate(({5, 6}, {4, 12})):
        for token, logit in enumerate(logits[row]):
            if token in seen:
                logit = logit / 1.5 if logit > 0 else logit * 1.5
            assert penalised[row, token] == pytest.approx(logit, rel=1e-6)
    assert (logits[0, [5, 6]] > 0).any() or (logits[1, [4, 12]] > 0).any()
    Model.reads_prompt = False  # a source is no text that the model wrote
    assert not ops.any(penalty.start(Model, inputs, VOCABULARY))


@pytest.mark.parametrize("penalty", [5e-324, 1e-38, 1e300, float("inf")])
def test_extreme_penalties_keep_logits_finite(penalty):
    logits, seen = np.float32([[5, -5, 0, 1, -np.inf]]), np.array([[True, True, True, False, True]])
    penalised = np.asarray(RepetitionPenalty(penalty).apply(logits, seen))[0]
    assert np.isfinite(penalised[:4]).all() and penalised[3] == 1 and penalised[4] == -np.inf
    assert (abs(penalised[:2]) > 1e30).tolist() == ([True, False] if penalty < 1 else [False, True])


def test_penalised_sampling_equals_a_loop_over_the_whole_text():
    model = Markov(2, PROMPTS)
    no_padding = np.where(np.arange(len(model.logits)) > 0, 0, -1)[None]

    def continued(penalty):
        sample = Sample(temperature=1e-4, repetition_penalty=penalty, seed=0)
        strategy = Constrained(sample, no_padding)
        return decode_eagerly(model, PROMPTS, strategy, 5, ends=(-1,))[0].tolist()

    penalised = continued(5.0)
    assert penalised != continued(1.0)
    for prompt, tokens in zip(PROMPTS, penalised, strict=True):
        text = prompt[prompt > 0].tolist()
        for token in tokens:
            logits = np.copy(model.logits[text[-1]])
            logits[0] = -np.inf
            for seen in set(text):
                logits[seen] = logits[seen] / 5 if logits[seen] > 0 else logits[seen] * 5
            assert token == logits.argmax()
            text.append(token)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_p": 1.1}, "`min_p` must be in [0, 1]. Received: min_p=1.1."),
        ({"typical_p": 0}, "`typical_p` must be in (0, 1]. Received: typical_p=0."),
        ({"repetition_penalty": 0}, "`repetition_penalty` must be a number above 0. Received:"),
        ({"repetition_penalty": "2"}, "`repetition_penalty` must be a number above 0."),
        ({"seed": "a"}, "`seed` must be an integer of 64 bits, or None. Received: seed='a'."),
        ({"seed": 2**63}, "`seed` must be an integer of 64 bits, or None. Received: seed="),
    ],
)
def test_arguments_outside_their_range_are_refused(arguments, message):
    with pytest.raises(ValueError) as error:
        Sample(**arguments)
    assert message in str(error.value)


def test_seeds_of_64_bits_give_numbers_on_each_backend():
    """Two seeds give other numbers; the same seed, also one of NumPy, gives the same."""
    first, second, *same = (
        np.asarray(Sample(seed=seed).noise(7, 3)) for seed in (-5, 2**63 - 1, -5, np.int64(-5))
    )
    assert np.all(first != second)
    for numbers in same:
        np.testing.assert_array_equal(numbers, first)
