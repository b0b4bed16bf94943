"""Speculative decoding has the distribution of the model alone, and greedily its tokens."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_models import (
    EOS,
    NO_PADDING,
    PROMPTS,
    VOCABULARY,
    Markov,
    decode_eagerly,
    model_of,
)
from keras import ops
from marks import slow

from keras_attn import export, layers, models
from keras_attn.generation import (
    Beam,
    Constrained,
    Forbidden,
    Forced,
    Greedy,
    NoRepeat,
    Sample,
    Speculative,
    compilation,
    generate,
)
from keras_attn.generation.loop import DecodingOptions, read_inputs
from keras_attn.generation.rounds import RowStates, accept, append

LENGTH = 5
# A model, and a draft that agrees with it now and then.
MARKOV, DRAFT = Markov(1, PROMPTS), Markov(1, PROMPTS)
DRAFT.logits = MARKOV.logits + np.random.default_rng(3).normal(0, 1, MARKOV.logits.shape)
DRAFT.logits = DRAFT.logits.astype("float32")


@functools.cache
def draft_of(kind):
    """Return a model that agrees with the other one now and then: it has noise on its weights."""
    model, _, _ = model_of(kind)
    draft = type(model).from_config(model.get_config())
    random = np.random.default_rng(3)
    for ours, its in zip(draft.trainable_variables, model.trainable_variables, strict=True):
        ours.assign(its + random.normal(0, 0.2, its.shape))
    return draft


def counted(model, inputs, strategy, max_length, ends=(-1,), grows=False):
    """Return ids, scores and steps as arrays."""
    options = DecodingOptions(max_length, 2, ends, grows, max_length)
    results = strategy.decode_and_count(model, read_inputs(tf.constant(inputs), None, 0), options)
    return [x.numpy() for x in results]


@pytest.mark.parametrize(
    ("kind", "tokens", "grows", "ends"),
    [("encoder_decoder", 1, True, (EOS,)), slow("causal", 3, False, (-1,))],
)
def test_greedy_speculation_writes_the_tokens_of_greedy_decoding(kind, tokens, grows, ends):
    """Rows of different lengths accept differently, and some end early."""
    model, inputs, _ = model_of(kind)
    strategy = Speculative(draft_of(kind), tokens)
    ids, scores, steps = counted(model, inputs, strategy, LENGTH, ends, grows)
    expected, expected_scores = decode_eagerly(model, inputs, Greedy(), LENGTH, ends)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=1e-4)
    assert len({*steps}) > 1 and steps.min() < LENGTH


@pytest.mark.parametrize("grows", [False, True])
def test_the_slots_of_refused_tokens_are_written_again(grows, monkeypatch):
    model, inputs, _ = model_of("causal")
    inputs, draft, counts = inputs[:1], draft_of("causal"), []
    rewind = model.depth.rewind

    def counting(cache, count):
        cache = rewind(cache, count)
        counts.append((int(count), cache["layers"][0]["attention"]["key"].shape[2]))
        return cache

    monkeypatch.setattr(model.depth, "rewind", counting)
    ids, _, steps = counted(model, inputs, Speculative(draft, 3), LENGTH, grows=grows)
    np.testing.assert_array_equal(ids, decode_eagerly(model, inputs, Greedy(), LENGTH)[0])
    used, slots = np.transpose(counts)
    assert len(used) == steps[0] - 1 and used[-1] < inputs.shape[1] + LENGTH + 3
    most = inputs.shape[1] + LENGTH - 1 + 3
    np.testing.assert_array_equal(slots, used if grows else most)


def test_rows_of_few_tokens_fit_into_the_slots_that_they_share():
    model, inputs, _ = model_of("causal")
    strategy = Speculative(draft_of("causal"), 8)
    assert strategy._num_slots(LENGTH, 2) < strategy._num_slots(LENGTH, None)
    ids = counted(model, inputs[:2], strategy, LENGTH)[0]
    np.testing.assert_array_equal(ids, decode_eagerly(model, inputs[:2], Greedy(), LENGTH)[0])


@pytest.mark.slow
def test_speculation_compiled_by_xla_gives_the_same_tokens():
    model, inputs, _ = model_of("causal")
    strategy = Speculative(draft_of("causal"), 2)
    ids, _ = generate(model, inputs, strategy, LENGTH, jit_compile=True)
    np.testing.assert_array_equal(ids, decode_eagerly(model, inputs, Greedy(), LENGTH)[0])


def test_a_draft_that_is_the_model_is_always_accepted():
    steps = counted(MARKOV, PROMPTS, Speculative(MARKOV, 3, Sample(1.3, seed=3)), LENGTH)[2]
    assert steps.tolist() == [1 + 1] * len(PROMPTS)  # one token of the prompt, then 4


def chi_square(counts, probabilities):
    """Return Pearson's statistic over its degrees of freedom, and their number."""
    expected = counts.sum() * probabilities
    kept = expected >= 5
    return ((counts - expected)[kept] ** 2 / expected[kept]).sum(), kept.sum() - 1


@pytest.mark.parametrize("arguments", [{"temperature": 1.5, "top_k": 5, "min_p": 0.05}, {}])
def test_the_distribution_is_that_of_the_model(arguments):
    """All sequences of three tokens, each with its exact probability, in 4,000 rows."""
    strategy = Sample(**arguments, seed=5)
    many = np.repeat(PROMPTS[:1], 4000, axis=0)
    options = DecodingOptions(3, 2, (-1,), False, 3).with_processor(
        Constrained("greedy", NO_PADDING)
    )
    speculative = Speculative(DRAFT, 2, strategy)
    results = speculative.decode_and_count(MARKOV, read_inputs(tf.constant(many), None, 0), options)
    ids, scores, steps = (x.numpy() for x in results)
    texts = list(itertools.product(range(1, VOCABULARY), repeat=3))
    logits = np.array([[MARKOV.log_probs(0, tokens[:n]) for n in range(3)] for tokens in texts])
    logits[..., 0] = -np.inf
    p = strategy.distribution(logits.astype("float32").reshape(-1, VOCABULARY))[0]
    p = ops.convert_to_numpy(p).reshape(logits.shape)
    exact = np.zeros((VOCABULARY,) * 3)
    for tokens, rows in zip(texts, p, strict=True):
        exact[tokens] = np.prod(rows[range(3), tokens])
    np.testing.assert_allclose(np.exp(scores), exact[tuple(ids.T)], rtol=1e-3)
    assert exact.sum() == pytest.approx(1, abs=1e-5) and 1 < steps.mean() < 3
    counts = np.zeros_like(exact)
    np.add.at(counts, tuple(ids.T), 1)
    assert counts[exact == 0].sum() == 0
    for axes in ((1, 2), (0, 2), (0, 1), ()):  # each token, and all together
        value, degrees = chi_square(counts.sum(axes).ravel(), exact.sum(axes).ravel())
        assert value < degrees + 5 * np.sqrt(2 * degrees), (axes, value, degrees)
    # The draft alone has another distribution.
    drafts, _ = decode_eagerly(DRAFT, many, Constrained(strategy, NO_PADDING), 2)
    value, degrees = chi_square(np.bincount(drafts[:, 1], minlength=7), exact.sum((0, 2)))
    assert value > 10 * degrees


def test_a_refused_proposal_is_replaced_from_the_positive_difference():
    p = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]] * 2000, "float32")
    q = np.array([[[0.9, 0.0, 0.1]]] * 2000, "float32")
    random = np.random.default_rng(0)
    proposed = random.choice(3, (2000, 1), p=q[0, 0]).astype("int32")
    tokens, accepted = accept(p, q, proposed, random.uniform(size=(2000, 2)).astype("float32"))
    tokens, accepted = np.asarray(tokens), np.asarray(accepted)
    is_accepted = accepted == 1
    assert not is_accepted[proposed[:, 0] == 2].any()  # the model never writes it
    assert is_accepted[proposed[:, 0] == 0].mean() == pytest.approx(5 / 9, abs=0.05)
    assert (tokens[~is_accepted, 0] == 1).all() and (tokens[is_accepted, 1] == 2).all()


def test_a_row_takes_no_token_after_its_end_or_beyond_the_maximum():
    zeros = tf.zeros(3, "int32")
    rows = RowStates(zeros, tf.constant([0, 2, 1]), tf.constant([False, False, True]), *[()] * 4)
    rows = rows._replace(score=tf.zeros(3), ids=tf.zeros((3, 4), "int32"), steps=zeros)
    new = tf.constant([[5, EOS, 6], [4, 5, 6], [4, 5, 6]])
    log_p = tf.fill((3, 3, VOCABULARY), -0.5)
    options = DecodingOptions(4, 2, (EOS,), False, 4)
    rows = append(rows, new, tf.constant([2, 2, 2]), log_p, (), options)
    assert rows.ids.numpy().tolist() == [[5, EOS, 0, 0], [0, 0, 4, 5], [0, 0, 0, 0]]
    assert rows.length.numpy().tolist() == [2, 4, 1] and rows.finished.numpy().all()
    assert rows.score.numpy().tolist() == [-1, -1, 0] and rows.steps.numpy().tolist() == [1, 1, 0]


def test_a_constraint_and_a_penalty_reach_the_proposals():
    """Both follow the accepted tokens, not the refused ones."""
    table = np.full((3, VOCABULARY), -1)
    table[0, [4, 5]], table[1, [5, 6]], table[2, [4, 6]] = 1, 2, 0
    sample = Sample(temperature=1e-4, repetition_penalty=3.0, seed=1)
    expected, _ = decode_eagerly(MARKOV, PROMPTS, Constrained(sample, table), LENGTH, (-1,))
    strategy = Constrained(Speculative(DRAFT, 2, sample), table)
    ids, _ = decode_eagerly(MARKOV, PROMPTS, strategy, LENGTH, (-1,))
    np.testing.assert_array_equal(ids, expected)
    assert len({tuple(row) for row in ids}) > 1


@pytest.mark.slow
def test_an_export_holds_the_weights_of_the_draft_and_the_table(tmp_path):
    model, inputs, _ = model_of("causal")
    table = np.full((2, VOCABULARY), -1)
    table[0, [4, 5]], table[1, [5, 6]] = 1, 0
    strategy = Constrained(Speculative(draft_of("causal"), 2), table)
    path = export.saved_model(model, tmp_path, strategy=strategy, max_length=5)
    run = tf.saved_model.load(path).signatures["ids"]
    ids = run(token_ids=tf.constant(inputs), lengths=tf.constant([3, 2, 1]))["ids"]
    expected, _ = decode_eagerly(model, inputs, Constrained("greedy", table), 5)
    np.testing.assert_array_equal(ids, expected)
    assert (expected != decode_eagerly(model, inputs, "greedy", 5)[0]).any()


def test_a_changed_draft_is_compiled_again():
    model, _, _ = model_of("causal")
    draft = models.gpt(VOCABULARY, 1, 2, 6, 7, max_length=16)

    def compiled():
        options = DecodingOptions(3, 2, (EOS,), False, 3)
        strategy = Speculative(draft, 2)
        tasks = compilation.CompiledTasks(model, strategy, options, False)
        return tasks._compiled(compilation.decode, [PROMPTS])

    before = compiled()
    assert compiled() is before
    layers.add_lora(draft, rank=2)
    assert compiled() is not before


def test_wrappers_of_other_drafts_are_other_strategies():
    first, second = (Speculative(draft, 2) for draft in (DRAFT, MARKOV))
    assert first == Speculative(DRAFT, 2) != Speculative(DRAFT, 3)
    for wrap in (lambda s: Forbidden(s, [4]), lambda s: Forced(s, 4), lambda s: NoRepeat(s, 2)):
        assert wrap(first) == wrap(first) and hash(wrap(first)) == hash(wrap(first))
        assert wrap(first) != wrap(second)
    assert Forbidden("greedy", [4]) == Forbidden("greedy", [4]) != Forbidden("greedy", [5])


def test_drafts_that_do_not_fit_are_refused():
    model, inputs, _ = model_of("causal")
    cases = [
        (models.gpt(VOCABULARY + 1, 1, 2, 6, 7, max_length=16), "same kind and vocabulary"),
        (models.transformer(VOCABULARY, 1, 2, 6, 7), "same kind and vocabulary"),
        (models.gpt(VOCABULARY, 1, 2, 6, 7, max_length=15), "max_length=15 of the draft, 16 of"),
    ]
    for draft, message in cases:
        with pytest.raises(ValueError, match=message):
            Speculative(draft).decode(
                model, read_inputs(inputs, None, 0), DecodingOptions(3, 2, (EOS,), True, 3)
            )
    with pytest.raises(ValueError, match="a `Greedy` or a `Sample`. Received: strategy=Beam"):
        Speculative(DRAFT, strategy=Beam())
    with pytest.raises(ValueError, match="`model` must be an `EncoderDecoder`"):
        Speculative(keras.layers.Dense(3))
    with pytest.raises(ValueError, match="tokens=0"):
        Speculative(DRAFT, 0)
    assert Greedy() != Speculative(DRAFT) != Speculative(MARKOV)
