"""The LSTM translator against loops in NumPy: its formulas and its cache."""

import numpy as np
import oracles
import pytest

from recipes.translate.lstm import LSTMTranslator

V, D = 13, 5
SOURCE = np.array([[5, 7, 11, 9, 3, 6, 4], [8, 4, 3, 0, 0, 0, 0]])
TARGET = np.array([[2, 6, 10], [2, 12, 11]])
IDS = {"source_ids": SOURCE, "target_ids": TARGET}


@pytest.fixture(scope="module")
def model():
    made = LSTMTranslator(V, 2, D)
    oracles.scramble(made, scale=0.7)
    return made


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
    attention_weights = oracles.attention_weights(model.attention)
    (c,), _ = oracles.attention(s[None], x[None], attention_weights, everywhere, score)
    kernel, bias = weights(model.readout)
    return np.tanh(np.concatenate([s, c], axis=1) @ kernel + bias) @ table.T


@pytest.mark.slow
def test_output_equals_the_formulas_token_after_token(model):
    logits = np.asarray(model(IDS))
    for row in range(2):
        source = SOURCE[row][SOURCE[row] != 0]
        expected = logits_of(model, source, TARGET[row])
        np.testing.assert_allclose(logits[row], expected, atol=1e-4)


@pytest.mark.slow
def test_cached_steps_equal_one_pass(model):
    whole, start = np.asarray(model(IDS)), 0
    constants, cache = model.start(IDS, 5)
    for length in (2, 1):
        end = start + length
        logits, cache = model.step(TARGET[:, start:end], constants, cache, np.arange(start, end))
        np.testing.assert_allclose(logits, whole[:, start:end], atol=1e-5)
        start = end


def test_a_step_with_positions_alone_is_refused(model):
    constants, cache = model.start(IDS, None)
    with pytest.raises(ValueError, match="`key_positions` need an `attention_mask`"):
        model.step(TARGET[:, :1], constants, cache, np.arange(1), key_positions=np.arange(1))


@pytest.mark.parametrize("argument", ["vocabulary_size", "num_layers", "hidden_dim"])
def test_a_size_below_one_is_refused(argument):
    with pytest.raises(ValueError, match=f"{argument}=0"):
        LSTMTranslator(**{"vocabulary_size": V, "hidden_dim": D, argument: 0})
