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
    Markov,
    beam_by_hand,
    decode_eagerly,
    greedy_by_hand,
    hypotheses,
    model_of,
    sharpened,
)
from marks import slow

from keras_attn import models
from keras_attn.generation import Beam, Greedy, Sample, compilation, decoding, generate
from keras_attn.generation.loop import DecodingOptions


def check_rows(log_probs, results, search, max_length):
    """Check ids and scores of each row against a search in Python."""
    ids, scores = (np.asarray(x) for x in results)
    for row, tokens in enumerate(ids.tolist()):
        expected, score = search(log_probs, row)
        assert tokens == [*expected, *[0] * (max_length - len(expected))]
        np.testing.assert_allclose(scores[row], score, rtol=1e-4, atol=1e-4)


def check_empty(results, max_length):
    ids, scores = results
    assert ids.shape == (0, max_length) and scores.shape == (0,)


def test_greedy_equals_the_loop_without_caches():
    """Inside a function; an empty batch has no rows."""
    model, inputs, log_probs = model_of("causal")
    shape = [tf.TensorSpec((None, None), "int32")]
    traced = tf.function(lambda ids: generate(model, ids, "greedy", 6), shape)
    ids, scores = traced(inputs)
    check_rows(log_probs, (ids, scores), lambda p, row: greedy_by_hand(p, row, 6), 6)
    check_empty(traced(inputs[:0]), 6)
    assert len({tuple(row) for row in ids.numpy()}) > 1


@pytest.mark.slow
def test_greedy_translations_equal_the_loop_without_caches():
    model, inputs, log_probs = model_of("encoder_decoder")
    results = decode_eagerly(model, inputs, "greedy", 6)
    check_rows(log_probs, results, lambda p, row: greedy_by_hand(p, row, 6), 6)
    assert len({tuple(row) for row in results[0]}) > 1


# XLA compiles an encoder-decoder for nine seconds; both models' loops differ by the prompt only.
# Sampling compiles the loop of greedy decoding.
@pytest.mark.parametrize("jit_compile", [False, slow(True)])
def test_beam_equals_the_textbook(jit_compile):
    model, inputs, log_probs = model_of("causal")
    beams = 2 if jit_compile else 3
    results = generate(model, inputs, Beam(beams, 0.6), 7, jit_compile=jit_compile)
    check_rows(log_probs, results, lambda p, row: beam_by_hand(p, row, beams, 0.6, 7), 7)
    if not jit_compile:
        check_empty(generate(model, inputs[:0], Beam(3, 0.6), 7), 7)


def test_beams_of_translations_equal_the_textbook():
    model, inputs, log_probs = model_of("encoder_decoder")
    results = decode_eagerly(model, inputs, Beam(2, 0.6), 4)
    check_rows(log_probs, results, lambda p, row: beam_by_hand(p, row, 2, 0.6, 4), 4)


@pytest.mark.parametrize("length_penalty", [0.6, 2.0])
def test_wide_beam_finds_the_best_of_all_hypotheses(length_penalty):
    def best(log_probs, row):
        normalised = [
            (score / ((5 + len(tokens)) / 6) ** length_penalty, tokens)
            for tokens, score in hypotheses(log_probs, row, 3)
        ]
        score, tokens = max(normalised)
        return tokens, score

    for seed in range(2):
        model = Markov(seed, PROMPTS)
        results = decode_eagerly(model, PROMPTS, Beam(VOCABULARY**2, length_penalty), 3)
        check_rows(model.log_probs, results, best, 3)


def test_strategies_without_a_choice_are_greedy():
    """One beam that no end token stops, and sampling almost without temperature."""
    for seed in range(2):
        model = Markov(seed, PROMPTS)
        ids, scores = decode_eagerly(model, PROMPTS, Greedy(), 6, ends=(-1,))
        beam = decode_eagerly(model, PROMPTS, Beam(1, length_penalty=0.0), 6, ends=(-1,))
        np.testing.assert_array_equal(beam[0], ids)
        np.testing.assert_allclose(beam[1], scores, rtol=1e-5)
        sampled = decode_eagerly(model, PROMPTS, Sample(temperature=1e-4), 6, ends=(-1,))
        np.testing.assert_array_equal(sampled[0], ids)


MANY = np.repeat(PROMPTS[:1], 4000, axis=0)


def test_sampling_follows_the_distribution():
    model = Markov(0, PROMPTS)
    first = decode_eagerly(model, MANY, Sample(seed=1), 1)[0][:, 0]
    expected = np.exp(model.log_probs(0, ()))
    observed = np.bincount(first, minlength=VOCABULARY) / len(first)
    # Four standard deviations of a share of 4000 draws.
    assert (
        np.abs(observed - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000) + 1e-3
    ).all()


def test_sampling_stays_inside_top_k_and_top_p():
    model = Markov(0, PROMPTS)
    for top_k, top_p in ((2, None), (None, 0.6), (3, 0.5)):
        first = decode_eagerly(model, MANY, Sample(1.3, top_k, top_p, seed=2), 1)[0][:, 0]
        logits = model.log_probs(0, ()) / 1.3
        order = np.argsort(-logits)[: top_k or VOCABULARY]
        probabilities = np.exp(logits[order]) / np.exp(logits[order]).sum()
        mass_before = np.cumsum(probabilities) - probabilities
        assert set(first) == set(order[mass_before < (top_p or 1.1)])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_text_with_xla_too():
    model, inputs, _ = model_of("causal")
    many = np.repeat(inputs, 10, axis=0)
    expected, other = (decode_eagerly(model, many, Sample(seed=seed), 6)[0] for seed in (3, 4))
    again = generate(model, many, Sample(seed=3), 6, jit_compile=True)[0]
    np.testing.assert_array_equal(again, expected)
    assert (other != expected).any()


def test_sampling_without_a_seed_gives_different_text():
    model = Markov(0, PROMPTS)
    first, second = (decode_eagerly(model, MANY[:50], Sample(), 4)[0] for _ in range(2))
    assert (first != second).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "executor"), [(Greedy(), b"SINGLE_THREADED_EXECUTOR"), (Beam(2), b"")], ids=repr
)
def test_loops_without_beams_use_the_single_threaded_executor(strategy, executor):
    model = Markov(0, PROMPTS)
    traced = tf.function(lambda ids: generate(model, ids, strategy, 5), autograph=False)
    operations = traced.get_concrete_function(tf.constant(PROMPTS)).graph.get_operations()
    calls = [op for op in operations if op.type.endswith("PartitionedCall")]
    assert [op.get_attr("executor_type") for op in calls] == [executor]


@pytest.mark.slow
def test_a_deleted_model_is_collected_with_its_compiled_functions():
    model = models.gpt(VOCABULARY, 1, 2, 8, 11, max_length=16)
    generate(model, PROMPTS, "greedy", 3)
    (function,) = compilation._functions_of[model].values()
    refs = weakref.ref(model), weakref.ref(function)
    del model, function
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_the_most_recently_used_functions_of_a_model_are_kept(monkeypatch):
    monkeypatch.setattr(compilation, "MAX_FUNCTIONS", 2)
    model = models.gpt(VOCABULARY, 1, 2, 8, 11, max_length=16)

    def compiled(length):
        options = DecodingOptions(length, BOS, (EOS,), False, length)
        tasks = compilation.CompiledTasks(model, Greedy(), options, False)
        return tasks._compiled(compilation.decode, [PROMPTS])

    first, second = compiled(1), compiled(2)
    assert compiled(1) is first and compiled(2) is second and compiled(1) is first
    compiled(3)
    assert compiled(1) is first and compiled(2) is not second


@pytest.mark.slow
def test_half_precision_decoding_equals_its_own_full_forward_pass():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = sharpened(models.transformer(VOCABULARY, 1, 2, 8, 11))
    ids, _ = decode_eagerly(model, SOURCES[:1], "greedy", 4)
    written = [token for token in ids[0] if token]
    logits = model({"source_ids": SOURCES[:1], "target_ids": np.array([[BOS, *written[:-1]]])})
    np.testing.assert_array_equal(np.argmax(logits, -1)[0], written)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 1e-2), ("float64", 1e-5)])
def test_scores_are_float32_for_logits_of_any_dtype(dtype, tolerance):
    model = Markov(0, PROMPTS)
    model.logits = tf.cast(model.logits, dtype)
    ids, scores = decode_eagerly(model, PROMPTS, "greedy", 3, ends=(-1,))
    assert scores.dtype == "float32"
    exact = Markov(0, PROMPTS).log_probs
    for row, tokens in enumerate(ids):
        expected = sum(exact(row, tuple(tokens[:n]))[token] for n, token in enumerate(tokens))
        np.testing.assert_allclose(scores[row], expected, rtol=tolerance)


@pytest.mark.parametrize("kind", ["causal", "encoder_decoder"])
def test_errors(kind):
    model, inputs, _ = model_of(kind)
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

    def zeros(model, ids, lengths, strategy, options, *arguments):
        return np.zeros((len(ids), options.max_length)), None

    monkeypatch.setattr(decoding, "run_compiled", zeros)


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
