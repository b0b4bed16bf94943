"""Decoding equals loops without caches, and beam search equals enumeration."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_models import (
    BOS,
    EOS,
    PROMPTS,
    SOURCES,
    VOCABULARY,
    beam_by_hand,
    decode_eagerly,
    greedy_by_hand,
    hypotheses,
    model_of,
    sharpened,
)

from keras_attn import models
from keras_attn.generation import Beam, Greedy, Sample, decoding, generate


@pytest.fixture(params=["encoder_decoder", "causal"])
def subject(request):
    """Return a model, its inputs, and next-token log-probabilities computed without a cache."""
    return model_of(request.param)


# XLA compiles an encoder-decoder for nine seconds; both models' loops differ by the prompt only.
# Sampling compiles the loop of greedy decoding.
with_xla = pytest.mark.parametrize(
    "subject, jit_compile",
    [
        ("encoder_decoder", False),
        ("causal", False),
        pytest.param("causal", True, marks=pytest.mark.slow),
        pytest.param("encoder_decoder", True, marks=pytest.mark.slow),
    ],
    indirect=["subject"],
)
only_causal = pytest.mark.parametrize("subject", ["causal"], indirect=True)


def test_greedy_equals_the_loop_without_caches(subject):
    model, inputs, log_probs = subject
    ids, scores = generate(model, inputs, "greedy", 6)
    assert len({tuple(row) for row in ids.numpy()}) > 1
    for row in range(len(inputs)):
        expected, score = greedy_by_hand(log_probs, row, 6)
        assert ids[row].numpy().tolist() == expected
        np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "subject, length_penalty",
    [("encoder_decoder", 0.6), ("causal", 2.0)],
    indirect=["subject"],
)
def test_wide_beam_finds_the_best_of_all_hypotheses(subject, length_penalty):
    model, inputs, log_probs = subject
    max_length = 3
    strategy = Beam(VOCABULARY**2, length_penalty)
    ids, scores = decode_eagerly(model, inputs, strategy, max_length)
    for row in range(len(inputs)):

        def normalised(hypothesis):
            tokens, score = hypothesis
            return score / ((5 + len(tokens)) / 6) ** length_penalty

        best = max(hypotheses(log_probs, row, max_length), key=normalised)
        padding = [0] * (max_length - len(best[0]))
        assert ids[row].tolist() == [*best[0], *padding]
        np.testing.assert_allclose(scores[row], normalised(best), rtol=1e-4, atol=1e-4)


@with_xla
def test_beam_equals_the_textbook(subject, jit_compile):
    model, inputs, log_probs = subject
    beams = 2 if jit_compile else 3
    ids, scores = generate(model, inputs, Beam(beams, 0.6), 7, jit_compile=jit_compile)
    for row in range(len(inputs)):
        tokens, score = beam_by_hand(log_probs, row, beams, 0.6, 7)
        assert ids[row].numpy().tolist() == [*tokens, *[0] * (7 - len(tokens))]
        np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)


@only_causal  # a beam may prefer a hypothesis that ended early, as that of the other model does
def test_one_beam_is_greedy(subject):
    model, inputs, _ = subject
    beam = decode_eagerly(model, inputs, Beam(1, length_penalty=0.0), 6)
    greedy = decode_eagerly(model, inputs, "greedy", 6)
    np.testing.assert_array_equal(beam[0], greedy[0])
    np.testing.assert_allclose(beam[1], greedy[1], rtol=1e-5)


@pytest.mark.parametrize(
    "subject, strategy",
    [("encoder_decoder", Greedy()), ("causal", Beam(3))],
    indirect=["subject"],
    ids=["greedy", "beam"],
)
def test_a_row_does_not_depend_on_the_others(subject, strategy):
    model, inputs, _ = subject
    together, _ = decode_eagerly(model, inputs, strategy, 6)
    for row in range(len(inputs)):
        alone = inputs[row : row + 1, : np.count_nonzero(inputs[row])]
        ids, _ = decode_eagerly(model, alone, strategy, 6)
        np.testing.assert_array_equal(ids[0], together[row])


@only_causal
def test_sampling_follows_the_distribution(subject):
    model, inputs, log_probs = subject
    many = np.repeat(inputs[:1], 4000, axis=0)
    first = decode_eagerly(model, many, Sample(seed=1), 1)[0][:, 0]
    expected = np.exp(log_probs(0, ()))
    observed = np.bincount(first, minlength=VOCABULARY) / len(first)
    # Four standard deviations of a share of 4000 draws.
    assert (
        np.abs(observed - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000) + 1e-3
    ).all()


@only_causal
def test_sampling_stays_inside_top_k_and_top_p(subject):
    model, inputs, log_probs = subject
    many = np.repeat(inputs[:1], 500, axis=0)
    for top_k, top_p in ((2, None), (None, 0.6), (3, 0.5)):
        first = decode_eagerly(model, many, Sample(1.3, top_k, top_p, seed=2), 1)[0][:, 0]
        logits = log_probs(0, ()) / 1.3
        order = np.argsort(-logits)[: top_k or VOCABULARY]
        probabilities = np.exp(logits[order]) / np.exp(logits[order]).sum()
        mass_before = np.cumsum(probabilities) - probabilities
        assert set(first) == set(order[mass_before < (top_p or 1.1)])


@only_causal
def test_sampling_without_temperature_is_greedy(subject):
    model, inputs, _ = subject
    sampled, _ = decode_eagerly(model, inputs, Sample(temperature=1e-4, seed=0), 6)
    np.testing.assert_array_equal(sampled, decode_eagerly(model, inputs, Greedy(), 6)[0])


@pytest.mark.slow
@only_causal
def test_the_same_seed_gives_the_same_text_with_xla_too(subject):
    model, inputs, _ = subject
    many = np.repeat(inputs, 10, axis=0)
    expected, other = (generate(model, many, Sample(seed=seed), 6)[0].numpy() for seed in (3, 4))
    again = generate(model, many, Sample(seed=3), 6, jit_compile=True)[0]
    np.testing.assert_array_equal(again, expected)
    assert (other != expected).any()
    ids, scores = generate(model, inputs[:0], Sample(seed=3), 6)
    assert ids.shape == (0, 6) and scores.shape == (0,)


@only_causal
def test_sampling_without_a_seed_gives_different_text(subject):
    model, inputs, _ = subject
    many = np.repeat(inputs[:1], 50, axis=0)
    first, second = (decode_eagerly(model, many, Sample(), 4)[0] for _ in range(2))
    assert (first != second).any()


@only_causal
def test_generate_works_inside_a_function(subject):
    model, inputs, _ = subject
    traced = tf.function(lambda ids: generate(model, ids, Beam(3), 7))
    for expected, got in zip(
        decode_eagerly(model, inputs, Beam(3), 7), traced(tf.constant(inputs)), strict=True
    ):
        np.testing.assert_allclose(expected, got, rtol=1e-5)


@only_causal
@pytest.mark.parametrize(
    ("strategy", "executor"),
    [
        (Greedy(), b"SINGLE_THREADED_EXECUTOR"),
        pytest.param(Beam(2), b"", marks=pytest.mark.slow),
    ],
)
def test_loops_without_beams_use_the_single_threaded_executor(subject, strategy, executor):
    model, inputs, _ = subject
    traced = tf.function(lambda ids: generate(model, ids, strategy, 5), autograph=False)
    operations = traced.get_concrete_function(tf.constant(inputs)).graph.get_operations()
    calls = [op for op in operations if op.type.endswith("PartitionedCall")]
    assert [op.get_attr("executor_type") for op in calls] == [executor]


def test_empty_batch(subject):
    model, inputs, _ = subject
    for strategy, length in ((Greedy(), 6), (Beam(3), 7)):  # compiled already
        ids, scores = generate(model, inputs[:0], strategy, length)
        assert ids.shape == (0, length) and scores.shape == (0,)


@pytest.mark.slow
def test_a_deleted_model_is_collected_with_its_compiled_functions():
    model = models.gpt(VOCABULARY, 1, 2, 8, 11, max_length=16)
    generate(model, PROMPTS, "greedy", 3)
    (function,) = decoding._functions_of[model].values()
    refs = weakref.ref(model), weakref.ref(function)
    del model, function
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_the_most_recently_used_functions_of_a_model_are_kept(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_FUNCTIONS", 2)
    model = models.gpt(VOCABULARY, 1, 2, 8, 11, max_length=16)

    def compiled(length):
        return decoding._compiled(model, Greedy(), length, BOS, EOS, False, 1)

    first, second = compiled(1), compiled(2)
    assert compiled(1) is first and compiled(2) is second and compiled(1) is first
    compiled(3)
    assert compiled(1) is first and compiled(2) is not second


def test_half_precision_decoding_equals_its_own_full_forward_pass():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = sharpened(models.transformer(VOCABULARY, 1, 2, 8, 11))
    finally:
        keras.config.set_dtype_policy(policy)
    ids, _ = decode_eagerly(model, SOURCES[:1], "greedy", 5)
    written = [token for token in ids[0] if token]
    logits = model({"source_ids": SOURCES[:1], "target_ids": np.array([[BOS, *written[:-1]]])})
    np.testing.assert_array_equal(np.argmax(logits, -1)[0], written)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_scores_are_float32_for_logits_of_any_dtype(dtype):
    gpt = models.gpt(VOCABULARY, 1, 2, 8, 11, dropout=0.0)
    head = keras.layers.Dense(VOCABULARY, dtype=dtype)
    model = models.CausalLanguageModel(gpt.embedding, gpt.depth, gpt.position, head=head)
    ids, scores = decode_eagerly(model, PROMPTS[:1], "greedy", 3, ends=(-1,))
    assert scores.dtype == "float32"
    tokens = np.concatenate([PROMPTS[:1], ids], axis=1)
    logits = np.asarray(keras.ops.cast(model(tokens), "float64"))[0, PROMPTS.shape[1] - 1 : -1]
    chosen = np.take_along_axis(logits, ids[0][:, None], axis=-1)[:, 0]
    expected = np.sum(chosen - np.log(np.exp(logits).sum(axis=-1)))
    np.testing.assert_allclose(scores[0], expected, rtol=0.05 if dtype == "bfloat16" else 1e-4)


def test_errors(subject):
    model, inputs, _ = subject
    for arguments, message in (
        ({"strategy": "beem"}, "strategy='beem'"),
        ({"max_length": 0}, "max_length=0"),
        ({"eos_id": [EOS, VOCABULARY]}, "a token of the model's 7, or -1 for never. Rec"),
        ({"inputs": np.array([1, 2])}, "shape=(2,)"),
        ({"inputs": np.ones((1, 2))}, "float"),
        ({"inputs": {"ids": np.array([[1, 2]])}}, "['ids']"),
    ):
        options = {"inputs": inputs, "strategy": "greedy", "max_length": 3, **arguments}
        with pytest.raises(ValueError) as error:
            generate(model, **options)
        assert message in str(error.value)


@pytest.fixture
def written_by_zeros(monkeypatch):
    """Decoding writes zeros: what it would be asked for is checked before."""

    def compiled(model, strategy, max_length, *arguments):
        return lambda ids: (np.zeros((len(ids), max_length)), None)

    monkeypatch.setattr(decoding, "_compiled", compiled)


@pytest.mark.usefixtures("written_by_zeros")
def test_the_last_generated_token_needs_no_position():
    model, prompt = models.gpt(13, 1, 2, 6, 7, max_length=5), np.array([[5, 6, 7]])
    assert model.max_length == 5
    assert generate(model, prompt, max_length=3)[0].shape == (1, 3)
    message = "the 5 positions of the model, one.*inputs of 3 tokens, max_length=4"
    with pytest.raises(ValueError, match=message):
        generate(model, prompt, max_length=4)


@pytest.mark.usefixtures("written_by_zeros")
def test_a_source_has_at_most_as_many_tokens_as_positions():
    model = models.super_resolution_transformer(
        13, (1, 2, 1), (1, 5, 1), 1, 1, num_heads=2, hidden_dim=6, intermediate_dim=7
    )
    assert (model.max_source_length, model.max_length) == (2, 5)
    assert generate(model, np.array([[5, 6]]), max_length=5)[0].shape == (1, 5)
    with pytest.raises(ValueError, match="`max_length` must fit the 5 positions"):
        generate(model, np.array([[5, 6]]), max_length=6)
    with pytest.raises(
        ValueError, match="the 2 positions of the model for a source.*inputs of 3 tokens"
    ):
        generate(model, np.array([[5, 6, 7]]), max_length=5)


def test_strategy_errors():
    for make, message in (
        (lambda: Beam(0), "beams=0"),
        (lambda: Beam(2, -0.1), "length_penalty=-0.1"),
        (lambda: Sample(temperature=0.0), "temperature=0.0"),
        (lambda: Sample(top_k=0), "top_k=0"),
        (lambda: Sample(top_p=1.5), "top_p=1.5"),
    ):
        with pytest.raises(ValueError, match=f"must.*{message}"):
            make()


def test_strategies_are_compared_and_saved_by_their_arguments():
    for strategy in (Greedy(), Beam(3, 1.0), Sample(0.5, 4, 0.9, 7)):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(strategy))
        assert again == strategy and hash(again) == hash(strategy)
    assert len(set(itertools.chain([Beam(3), Beam(4), Greedy(), Sample(), Beam(3)]))) == 4
