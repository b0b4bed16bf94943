"""Adaptive computation time for an RNN cell."""

import warnings

import keras
from keras import ops, tree

from keras_attn import registry
from keras_attn.backend.loops import bounded_while
from keras_attn.compat.dropout_rnn_cell import DropoutRNNCell
from keras_attn.depth.halting import (
    advance,
    at_least_float32,
    check_halting,
    give_halting,
    halting_unit,
    start,
)
from keras_attn.ops.checks import check_sizes


@registry.register
class ACTCell(registry.Composite, keras.layers.Layer, DropoutRNNCell):
    """An RNN cell that runs another cell on each input until its halting probabilities sum to one.

        y^n, s^n = cell([x, n == 1], s^{n-1}),   h^n = sigmoid(w y^n + b),
        N = min(M, min{n: h^1 + ... + h^n >= 1 - epsilon}),   R = 1 - (h^1 + ... + h^{N-1}),
        y = sum_n p^n y^n,   s = sum_n p^n s^n,   p^n = h^n for n < N,   p^N = R

    For `keras.layers.RNN`, around any cell for inputs (B, D). The inner cell gets D + 1 numbers;
    the last one is 1 at the first step on an input, else 0. s^0 is the state after the previous
    input.

    One more state (B, 2) after the cell's own holds the sums of N and R so far; their sum is the
    ponder cost. A cell cannot add a loss inside the loop of `keras.layers.RNN`, so `ACTRNN` adds
    it; it returns N and R of each input, too. At each input, time is that of the row with the most
    steps. States, output and sums are float32 at least; the inner cell has its own dtype. Its
    dropout drops the same numbers at all steps, as in Keras.

    Cost: at most M times that of the cell.

    Use it for recurrent networks that should spend more steps on difficult inputs.

    Args:
        cell: a Keras RNN cell, such as `keras.layers.LSTMCell(64)`.
        max_steps: int. Most steps M on one input.
        epsilon: float. A row halts at a sum of 1 - epsilon, so that one step can be enough.
        ponder_loss: float. Weight of the ponder loss that `ACTRNN` adds.
        halting_bias: float. Initial b; the higher, the fewer steps at first.

    Call arguments:
        inputs: (B, D).
        states: list, the cell's states and (B, 2).

    Returns:
        The output (B, U), and the list of new states.

    Raises:
        ValueError: if `cell` is no RNN cell, `max_steps` < 1, `epsilon` or `ponder_loss` is below
            0, or inputs are not (B, D).

    Example:
        >>> import keras, keras_attn
        >>> cell = keras_attn.depth.ACTCell(keras.layers.LSTMCell(8), max_steps=5)
        >>> keras.layers.RNN(cell, return_sequences=True)(keras.ops.ones((2, 3, 4))).shape
        TensorShape([2, 3, 8])

    Differs from the paper: the halting probability is read from the cell's output, the state of
        Keras's cells, and h, not c, of an LSTM cell's. The ponder loss is a mean over inputs, where
        the paper sums.

    Reference: [Graves, 2016](https://arxiv.org/abs/1603.08983), section 2, eq. 1 to 13.
    """

    weight_axes = {"halting/kernel": (), "halting/bias": ()}

    def __init__(self, cell, max_steps, epsilon=0.01, ponder_loss=0.01, halting_bias=1.0, **kwargs):
        # No autocast: states stay in float32, and the inner cell casts its inputs itself.
        super().__init__(**{"autocast": False, **kwargs})
        cell = registry.revive(cell)
        is_layer = isinstance(cell, keras.layers.Layer) and not isinstance(cell, keras.layers.RNN)
        if not is_layer or not hasattr(cell, "state_size"):
            raise ValueError(
                "`cell` must be a Keras RNN cell, such as `keras.layers.LSTMCell(64)`. "
                f"Received: cell={cell!r}."
            )
        check_sizes(max_steps=max_steps)
        check_halting(epsilon=epsilon, ponder_loss=ponder_loss, halting_bias=halting_bias)
        self.cell = cell
        self.max_steps = max_steps
        self.epsilon = epsilon
        self.ponder_loss = ponder_loss
        self.halting_bias = halting_bias
        self.halting_unit = halting_unit(halting_bias, self.compute_dtype)
        self.is_counted = False  # An `ACTRNN` sets it.

    @property
    def compute_dtype(self):
        return at_least_float32(super().compute_dtype)

    @property
    def state_size(self):
        """Sizes of the states: those of `cell`, then 2."""
        sizes = self.cell.state_size
        return [*(sizes if isinstance(sizes, (list, tuple)) else [sizes]), 2]

    @property
    def output_size(self):
        """Size of the output, that of `cell`."""
        size = getattr(self.cell, "output_size", None)
        return self.state_size[0] if size is None else size

    def get_initial_state(self, batch_size=None):
        """Return the states before the first input: those of `cell`, then zeros (B, 2)."""
        if hasattr(self.cell, "get_initial_state"):
            states = self.cell.get_initial_state(batch_size=batch_size)
        else:
            states = [ops.zeros((batch_size, size)) for size in self.state_size[:-1]]
        states = states if tree.is_nested(states) else [states]
        return [*states, ops.zeros((batch_size, 2), self.compute_dtype)]

    def build(self, input_shape):
        if len(input_shape) != 2:
            raise ValueError(
                f"`inputs` must have shape (batch, width). Received: shape={tuple(input_shape)}."
            )
        registry.build_once(self.cell, (input_shape[0], input_shape[1] + 1))
        registry.build_once(self.halting_unit, (input_shape[0], self.output_size))

    def call(self, inputs, states, training=None):
        if training and self.ponder_loss and not self.is_counted:
            warnings.warn(
                "The ponder loss of an `ACTCell` is added by `keras_attn.depth.ACTRNN`, not by "
                "`keras.layers.RNN`. To train without one, set `ponder_loss=0`.",
                stacklevel=2,
            )
        *states, counts = states
        outputs = ops.zeros((ops.shape(inputs)[0], self.output_size), self.compute_dtype)
        means = [outputs, *(ops.zeros_like(state) for state in tree.flatten(states))]
        running = ops.ones_like(inputs[:, 0], dtype=self.compute_dtype)

        def step(number, state):
            before, means, halting = state
            first = ops.cast(ops.equal(number, 0), inputs.dtype)
            x = ops.concatenate([inputs, first * ops.ones_like(inputs[:, :1])], axis=-1)
            output, after = self.cell(x, tree.pack_sequence_as(states, before), training=training)
            after = [ops.cast(state, self.compute_dtype) for state in tree.flatten(after)]
            is_last = ops.equal(number, self.max_steps - 1)
            probability = self.halting_unit(output)[:, 0]
            halted, weight = advance(halting, probability, is_last, self.epsilon)
            results = [ops.cast(output, self.compute_dtype), *after]
            means = [
                m + ops.expand_dims(weight, 1) * x for m, x in zip(means, results, strict=True)
            ]
            # Keep the state of halted rows: further steps could diverge.
            runs = ops.expand_dims(halting.running, 1) > 0
            after = [ops.where(runs, *pair) for pair in zip(after, before, strict=True)]
            return after, means, halted

        _, (output, *after), halting = bounded_while(
            lambda state: ops.any(state[-1].running > 0),
            step,
            (tree.flatten(states), means, start(running)),
            self.max_steps,
            reads=inputs,
            add_loss=self.add_loss,
        )
        give_halting(self, halting)
        counts = counts + ops.stack([halting.steps, halting.remainder], axis=-1)
        return output, [*tree.pack_sequence_as(states, after), counts]

    def get_dropout_mask(self, step_input):
        if isinstance(self.cell, DropoutRNNCell):
            step_input = ops.cast(step_input, self.cell.compute_dtype)
            flag = ops.ones_like(step_input[:, :1])
            self.cell.get_dropout_mask(ops.concatenate([step_input, flag], axis=-1))

    def get_recurrent_dropout_mask(self, step_input):
        if isinstance(self.cell, DropoutRNNCell):
            step_input = ops.cast(step_input, self.cell.compute_dtype)
            self.cell.get_recurrent_dropout_mask(step_input)

    def reset_dropout_mask(self):
        if isinstance(self.cell, DropoutRNNCell):
            self.cell.reset_dropout_mask()

    def reset_recurrent_dropout_mask(self):
        if isinstance(self.cell, DropoutRNNCell):
            self.cell.reset_recurrent_dropout_mask()
