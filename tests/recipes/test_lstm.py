"""The LSTM translator against loops in NumPy: its formulas, its decoding, its files."""

import itertools

import keras
import numpy as np
import oracles
import pytest

from keras_attn import export, text
from keras_attn.generation import Beam, generate
from keras_attn.viz import capture_attention
from recipes.translate.lstm import LSTMTranslator

V, D = 13, 5
SOURCE = np.array([[5, 7, 11, 9, 3, 6, 4], [8, 4, 3, 0, 0, 0, 0]])
TARGET = np.array([[2, 6, 10], [2, 12, 11]])
IDS = {"source_ids": SOURCE, "target_ids": TARGET}


def made(num_layers=2, vocabulary_size=V):
    model = LSTMTranslator(vocabulary_size, num_layers, D)
    oracles.scramble(model, scale=0.7)
    return model


@pytest.fixture(scope="module")
def model():
    return made()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, weights, hidden, cell):
    """Run an LSTM over x (T, D); return the outputs and the last states."""
    kernel, recurrent, bias = weights
    outputs = []
    for token in x:
        gates = np.split(token @ kernel + hidden @ recurrent + bias, 4)
        i, f, o = (sigmoid(gates[number]) for number in (0, 1, 3))
        cell = f * cell + i * np.tanh(gates[2])
        hidden = o * np.tanh(cell)
        outputs.append(hidden)
    return np.array(outputs), hidden, cell


def logits_of(model, source, target):
    """Return the logits of one pair without padding, from the formulas, token after token."""

    def weights(layer):
        return [oracles.numpy_of(weight) for weight in layer.weights]

    (table,), zeros = weights(model.embedding), np.zeros(D)
    x, states = table[source] * np.sqrt(D), []
    for layer, bridge in zip(model.encoder, model.bridges, strict=True):
        forward, *last = lstm(x, weights(layer.forward_layer), zeros, zeros)
        backward, *first = lstm(x[::-1], weights(layer.backward_layer), zeros, zeros)
        x = np.concatenate([forward, backward[::-1]], axis=1)
        kernel, bias = weights(bridge)
        states.append(np.split(np.tanh(np.concatenate([*last, *first]) @ kernel + bias), 2))
    s = table[target] * np.sqrt(D)
    for layer, before in zip(model.decoder, states, strict=True):
        s, *_ = lstm(s, weights(layer), *before)
    score = oracles.additive(*weights(model.attention.score))
    everywhere = np.ones((len(target), len(source)), bool)
    of_attention = oracles.attention_weights(model.attention)
    (c,), _ = oracles.attention(s[None], x[None], of_attention, everywhere, score)
    kernel, bias = weights(model.readout)
    return np.tanh(np.concatenate([s, c], axis=1) @ kernel + bias) @ table.T


def test_output_equals_the_formulas_token_after_token(model):
    logits = np.asarray(model(IDS))
    for row in range(2):
        source = SOURCE[row][SOURCE[row] != 0]
        expected = logits_of(model, source, TARGET[row])
        np.testing.assert_allclose(logits[row], expected, atol=1e-4)


@pytest.mark.slow
def test_padding_and_other_rows_have_no_influence(model):
    alone = model({"source_ids": SOURCE[1:, :3], "target_ids": TARGET[1:]})
    np.testing.assert_allclose(model(IDS)[1:], alone, atol=1e-5)


@pytest.mark.parametrize(
    "slots, chunks",
    [pytest.param(None, [1, 1, 1], marks=pytest.mark.slow), (5, [2, 1])],
    ids=str,
)
def test_cached_steps_equal_one_pass(model, slots, chunks):
    whole, start = np.asarray(model(IDS)), 0
    constants, cache = model.start(IDS, slots)
    for length in chunks:
        end = start + length
        logits, cache = model.step(TARGET[:, start:end], constants, cache, np.arange(start, end))
        np.testing.assert_allclose(logits, whole[:, start:end], atol=1e-5)
        start = end


@pytest.mark.slow
def test_greedy_decoding_takes_the_likeliest_token_of_each_pass(model):
    ids, scores = generate(model, SOURCE, max_length=6, eos_id=-1)
    for row in range(2):
        source = SOURCE[row][SOURCE[row] != 0][None]
        target, total = [2], 0.0
        for _ in range(6):
            logits = np.asarray(model({"source_ids": source, "target_ids": [target]}))[0, -1]
            target.append(int(logits.argmax()))
            total += logits.max() - np.log(np.exp(logits).sum())
        np.testing.assert_array_equal(ids[row], target[1:])
        np.testing.assert_allclose(scores[row], total, rtol=1e-4)


@pytest.mark.slow
def test_a_beam_for_each_sequence_finds_the_best_one():
    """All sequences of three tokens of a vocabulary of five, scored by whole passes."""
    model, size, end = made(1, 5), 5, 3
    source = np.array([[1, 4, 3], [2, 1, 3]])
    ids, scores = generate(
        model, source, Beam(size**2, 0.6), max_length=3, eos_id=end, jit_compile=True
    )
    for row in range(2):
        best = {}
        sequences = np.array(list(itertools.product(range(size), repeat=3)))
        targets = np.insert(sequences[:, :2], 0, 2, axis=1)
        sources = np.repeat(source[row : row + 1], len(targets), axis=0)
        logits = model({"source_ids": sources, "target_ids": targets})
        for tokens, log_probs in zip(sequences, keras.ops.log_softmax(logits), strict=True):
            tokens, log_probs = tuple(map(int, tokens)), np.asarray(log_probs)
            length = tokens.index(end) + 1 if end in tokens else 3
            total = sum(log_probs[place, tokens[place]] for place in range(length))
            best[tokens[:length]] = total / ((5 + length) / 6) ** 0.6
        expected = max(best, key=best.get)
        np.testing.assert_array_equal(ids[row][: len(expected)], expected)
        np.testing.assert_allclose(scores[row], best[expected], rtol=1e-4)


@pytest.mark.slow
def test_attention_is_captured_and_each_row_sums_to_one(model):
    whole = np.asarray(model(IDS))
    with capture_attention(model) as scores:
        np.testing.assert_array_equal(model(IDS), whole)
    (found,) = scores.values()
    np.testing.assert_allclose(model.cross_attention(IDS)[:, 0], found, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)
    assert found.shape == (2, 1, 3, 7) and np.all(found[1, :, :, 3:] == 0)


def test_a_step_with_positions_alone_is_refused(model):
    constants, cache = model.start(IDS, None)
    with pytest.raises(ValueError, match="`key_positions` need an `attention_mask`"):
        model.step(TARGET[:, :1], constants, cache, np.arange(1), key_positions=np.arange(1))


@pytest.mark.slow
def test_a_saved_model_gives_the_same_output(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(IDS), model(IDS), atol=1e-6)
    assert loaded.get_config() == model.get_config()


@pytest.mark.parametrize("argument", ["vocabulary_size", "num_layers", "hidden_dim"])
def test_a_size_below_one_is_refused(argument):
    with pytest.raises(ValueError, match=f"{argument}=0"):
        LSTMTranslator(**{"vocabulary_size": V, "hidden_dim": D, argument: 0})


@pytest.mark.slow
def test_the_export_translates_as_the_model_does(tmp_path):
    import tensorflow as tf

    tokenizer = text.Characters.train(["one two"])
    model = made(1, tokenizer.vocabulary_size)
    lengths = {"max_length": 7, "max_source_length": 11}
    translator = export.Translator(model, tokenizer, Beam(3), *lengths.values())
    directory = export.saved_model(
        model, tmp_path, tokenizer=tokenizer, strategy=Beam(3), **lengths
    )
    signatures = tf.saved_model.load(directory).signatures
    assert set(signatures) == {"serving_default", "ids", "attention"}
    sources = tf.constant(["one", "two one", ""])
    for name in ("serving_default", "attention"):
        found = signatures[name](text=sources)
        expected = translator.signatures[name](sources)
        np.testing.assert_array_equal(found["translation"], expected["translation"])
        np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
    rows = found["cross_attention"].numpy().sum(axis=-1)
    assert rows.shape[1:3] == (1, 1) and np.all((np.abs(rows - 1) < 1e-5) | (rows == 0))
