"""Recurrent networks of adaptive computation time, and Graves's equations in float64 loops."""

import halting as scalar
import keras
import numpy as np
import oracles

from keras_attn.depth import ACTRNN, ACTCell

B, T, D, U, MOST = 3, 5, 2, 7, 6
X = oracles.random(B, T, D)
REAL = np.arange(T)[None] < np.array([[5], [3], [4]])
CELLS = {
    "simple": keras.layers.SimpleRNNCell,
    "lstm": keras.layers.LSTMCell,
    "gru": keras.layers.GRUCell,
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(weights, x, states):
    """Gates in Keras's order: input, forget, candidate, output."""
    kernel, recurrent, bias = weights
    i, f, g, o = np.split(x @ kernel + states[0] @ recurrent + bias, 4)
    c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, [h, c]


def oracle(cell, x, real):
    """Graves's equations of an LSTM, sequence by sequence: outputs, last states, N and R."""
    weights = [oracles.numpy_of(w) for w in cell.cell.weights]
    kernel, bias = (oracles.numpy_of(w) for w in cell.halting_unit.weights)
    num_states = len(cell.state_size) - 1
    outputs, taken, remainder = (
        np.zeros((*x.shape[:2], U)),
        np.zeros(x.shape[:2]),
        np.zeros(x.shape[:2]),
    )
    lasts = [np.zeros((len(x), U)) for _ in range(num_states)]
    for b in range(len(x)):
        states, y = [np.zeros(U)] * num_states, np.zeros(U)
        for t in range(x.shape[1]):
            if real[b, t]:
                seen, thoughts, probabilities = states, [], []
                for n in range(1, cell.max_steps + 1):
                    flagged = np.array([*x[b, t], 1.0 if n == 1 else 0.0])
                    output, seen = lstm_step(weights, flagged, seen)
                    thoughts.append([output, *seen])
                    probabilities.append(sigmoid(output @ kernel[:, 0] + bias[0]))
                means, taken[b, t], remainder[b, t] = scalar.graves(
                    probabilities, cell.max_steps, cell.epsilon
                )
                pairs = list(zip(means, thoughts, strict=False))
                y, *states = (
                    sum(weight * thought[part] for weight, thought in pairs)
                    for part in range(1 + num_states)
                )
            outputs[b, t] = y  # Keras repeats the output where the input is masked.
        for last, state in zip(lasts, states, strict=True):
            last[b] = state
    return outputs, lasts, taken, remainder


def built(name="simple", kind=ACTRNN, max_steps=MOST, cell_arguments=(), **arguments):
    """Return a layer whose inputs take different numbers of steps."""
    cell = ACTCell(CELLS[name](U, **dict(cell_arguments)), max_steps, ponder_loss=0.3)
    layer = kind(cell, return_sequences=True, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer, seed=1, scale=0.8)
    cell.halting_unit.set_weights([oracles.random(U, 1, scale=1.5), np.array([-0.5])])
    return layer
