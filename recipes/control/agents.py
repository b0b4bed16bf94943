"""Agents by name: models from states and a memory to a policy, a value and the next memory."""

from typing import NamedTuple

import keras
from keras import ops

from keras_attn import models
from keras_attn.registry import register
from keras_attn.residuals import Gate

from .options import GATES


class Agent(NamedTuple):
    """A model of `states` (B, T, D), `starts` (B, T) and a memory, which `initial(batch)` returns.

    Its outputs are `policy` (B, T, A), logits, `value` (B, T, 1) and the next memory, by the names
    of the inputs.
    """

    model: keras.Model
    initial: object


def build(name, state_size, num_actions, options):
    """Build the agent of that name; all have the same width and depth, but "random" no weights."""
    heads = {"policy": num_actions, "value": 1}
    if name in GATES or name == "transformer_xl":
        model = models.gtrxl(
            state_size,
            heads,
            **options.sizes(),
            memory_length=options.memory,
            residual=_gate(GATES[name]) if name in GATES else "post_norm",
            name=name,
        )
        return Agent(model, model.initial_memory)
    units = options.hidden_dim
    states = keras.Input((None, state_size), name="states")
    starts = keras.Input((None,), dtype="bool", name="starts")
    inputs, memory = {"states": states, "starts": starts}, {}
    if name == "random":
        nothing = ops.zeros_like(states[..., :1])
        outputs = {"policy": ops.repeat(nothing, num_actions, axis=-1), "value": nothing}
        return Agent(keras.Model(inputs, outputs, name=name), lambda batch: {})
    x = keras.layers.Dense(units, activation="relu")(states)
    if name == "lstm":
        memory = {key: keras.Input((units,), name=key) for key in ("hidden", "cell")}
        flags = ops.cast(starts, x.dtype)[..., None]
        x, *after = keras.layers.RNN(EpisodeLSTM(units), return_sequences=True, return_state=True)(
            ops.concatenate([x, flags], axis=-1), initial_state=list(memory.values())
        )
        outputs = dict(zip(memory, after, strict=True))
    else:
        x = keras.layers.Dense(units, activation="relu")(x)
        outputs = {}
    for key, size in heads.items():
        outputs[key] = keras.layers.Dense(size, dtype="float32", name=key)(x)
    model = keras.Model({**inputs, **memory}, outputs, name=name)
    return Agent(model, lambda batch: {key: ops.zeros((batch, units)) for key in memory})


def _gate(kind):
    """Return a gate with the paper's initial bias, which `sum` does not have."""
    return Gate(kind, bias=2.0 if kind == "gru" else 1.0)


@register
class EpisodeLSTM(keras.layers.LSTMCell):
    """An LSTM cell whose state is reset where the last number of its input is 1, not 0."""

    def build(self, input_shape):
        super().build((*input_shape[:-1], input_shape[-1] - 1))

    def call(self, inputs, states, training=False):
        continues = 1 - inputs[:, -1:]
        states = [state * continues for state in states]
        return super().call(inputs[:, :-1], states, training=training)
