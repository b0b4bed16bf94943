"""An RNN with the ponder loss of adaptive computation time."""

import functools

import keras
from keras import ops, tree

from keras_attn.backend.replicas import mean_over_replicas
from keras_attn.compat.replica_losses import ReplicaLosses
from keras_attn.depth.act_cell import ACTCell
from keras_attn.depth.halting import (
    Halting,
    at_least_float32,
    call_with_halting,
    give_halting,
    is_recorded,
    record_halting,
    show_steps,
    steps_metric,
)
from keras_attn.registry import Composite, register


@register
class ACTRNN(Composite, ReplicaLosses, keras.layers.RNN):
    """A `keras.layers.RNN` that adds the ponder loss of its `ACTCell`.

        loss += ponder_loss * mean of N + R over the real inputs of the batch

    `fit` and `evaluate` show the mean of N as the metric `NAME_steps`, except on JAX; NAME is the
    layer's name. Of several cells, each adds its own loss, and the metric is their mean. Masked
    inputs count in no mean. Everything else is as in `keras.layers.RNN`.

    Cost: that of `keras.layers.RNN` with the same cells.

    Use it for training an `ACTCell` with its ponder loss, in the place of `keras.layers.RNN`.

    Args:
        cell: an `ACTCell`, or a list of cells, stacked, with an `ACTCell` among them.
        return_sequences, return_state, go_backwards, stateful, unroll, zero_output_for_mask: as
            `keras.layers.RNN`.

    Call arguments:
        sequences: (B, T, D).
        initial_state, mask: as `keras.layers.RNN`. The state of an `ACTCell` may be that of the
            cell inside: then its sums start at 0.
        return_halting: bool. If True, N and R of each input are returned. No output changes.

    Returns:
        (B, U); with `return_sequences=True` (B, T, U); then, with `return_state=True`, the states;
        then, with `return_halting=True`, a `Halting` (B, T), in the order of the inputs, 0 where
        they are masked. Of several cells it has a row each, (B, C, T).

    Raises:
        ValueError: if no cell is an `ACTCell`, or `initial_state` has not a tensor for each state.

    Example:
        >>> import keras
        >>> from keras_attn.depth import ACTCell, ACTRNN
        >>> layer = ACTRNN(ACTCell(keras.layers.SimpleRNNCell(8), max_steps=5))
        >>> layer(keras.ops.ones((2, 3, 4))).shape, len(layer.losses)
        (TensorShape([2, 8]), 1)

    Differs from the paper: the ponder loss is a mean over inputs, where the paper sums.

    Reference: [Graves, 2016](https://arxiv.org/abs/1603.08983), section 2.1, eq. 9 to 12.
    """

    def __init__(self, cell, **kwargs):
        super().__init__(cell, **kwargs)
        self._is_stacked = isinstance(self.cell, keras.layers.StackedRNNCells)
        cells = self.cell.cells if self._is_stacked else [self.cell]
        self._act_cells = [(i, cell) for i, cell in enumerate(cells) if isinstance(cell, ACTCell)]
        if not self._act_cells:
            raise ValueError(
                f"`cell` must be an `ACTCell` or have one among its cells. Received: cell={cell!r}."
            )
        for _, cell in self._act_cells:
            cell.is_counted = True
        self.steps_taken = steps_metric(self)

    def call(self, sequences, initial_state=None, mask=None, training=None, return_halting=False):
        if initial_state is not None:
            initial_state = self._with_sums(initial_state, ops.shape(sequences)[0])
        call = functools.partial(super().call, sequences, initial_state, mask, training)
        if not return_halting:
            return call()
        results, halting = call_with_halting(self, call)
        return (*(results if isinstance(results, tuple) else (results,)), *halting)

    def compute_output_spec(
        self, sequences, initial_state=None, mask=None, training=None, return_halting=False
    ):
        arguments = sequences, initial_state, mask, training
        if not return_halting:
            return super().compute_output_spec(*arguments)
        # The shapes of Keras's RNN do not have it: trace the call.
        return keras.Operation.compute_output_spec(self, *arguments, return_halting=True)

    def _with_sums(self, initial_state, batch_size):
        """Append sums of 0 to the states of each `ACTCell` that is given none."""
        states = list(self._by_cell(initial_state))
        for place, cell in self._act_cells:
            cell_state = states[place]
            cell_state = list(cell_state) if tree.is_nested(cell_state) else [cell_state]
            if len(cell_state) == len(cell.state_size) - 1:
                cell_state.append(ops.zeros((batch_size, 2), cell.compute_dtype))
            if len(cell_state) != len(cell.state_size):
                raise ValueError(
                    "`initial_state` must have a tensor for each state of the cell. "
                    f"Received: {len(cell_state)} for states of sizes {cell.state_size}."
                )
            states[place] = cell_state
        return states if self._is_stacked else states[0]

    def _by_cell(self, states):
        return states if self._is_stacked else [states]

    def inner_loop(self, sequences, initial_state, mask, training=None):
        if is_recorded():
            results = self._recorded_loop(sequences, initial_state, mask, training)
        else:
            results = super().inner_loop(sequences, initial_state, mask, training)
        dtype = at_least_float32(self.compute_dtype)
        count = ops.sum(ops.ones_like(sequences[..., 0], dtype=dtype))
        if mask is not None:
            count = ops.sum(ops.cast(mask, dtype))
        for place, cell in self._act_cells:
            before, after = (self._by_cell(x)[place][-1] for x in (initial_state, results[-1]))
            # A stateful layer keeps its state from batch to batch: subtract what it began with.
            sums = ops.sum(after - before, axis=0)  # of N and of R
            if cell.ponder_loss:
                self.add_loss(cell.ponder_loss * mean_over_replicas(sums, count))
            show_steps(self.steps_taken, sums[0] / ops.maximum(count, 1), count, training)
        return results

    def _recorded_loop(self, sequences, initial_state, mask, training):
        """Run the loop with N and R of each input beside the outputs, and give them away."""
        cell = _RecordedCell(self.cell, [cell for _, cell in self._act_cells], training)
        names = "go_backwards", "unroll", "zero_output_for_mask"
        loop = keras.layers.RNN(cell, True, **{name: getattr(self, name) for name in names})
        count = 2 * len(self._act_cells)
        # On JAX a masked input repeats the first state, which an output of another width is not.
        first, width = tree.flatten(initial_state)[0], self.cell.output_size
        first = first if first.shape[-1] == width else ops.zeros((ops.shape(first)[0], width))
        blank = ops.zeros((ops.shape(first)[0], count), first.dtype)
        initial_state = [ops.concatenate([first, blank], axis=-1), *initial_state]
        last, outputs, (_, *states) = loop.inner_loop(sequences, initial_state, mask)
        recorded = outputs[..., -count:]  # (B, T, 2 C)
        if self.go_backwards:
            recorded = ops.flip(recorded, axis=1)
        if mask is not None:  # at masked inputs a loop repeats the output before
            recorded = ops.where(ops.expand_dims(mask, -1), recorded, 0)
        steps, remainder = (ops.swapaxes(recorded[..., i::2], 1, 2) for i in range(2))  # (B, C, T)
        if not self._is_stacked:
            steps, remainder = steps[:, 0], remainder[:, 0]
        give_halting(self, Halting(steps, remainder))
        return last[..., :-count], outputs[..., :-count], states


class _RecordedCell:
    """A cell whose output, also its first state, ends with N and R of each `ACTCell`."""

    def __init__(self, cell, act_cells, training):
        self.cell, self.act_cells, self.training = cell, act_cells, training
        self.state_size = cell.state_size

    def call(self, inputs, states):
        return self(inputs, states)

    def __call__(self, inputs, states):
        halting_of, (_, *states) = {}, states  # by the id of a cell
        with record_halting(lambda cell, halting: halting_of.update({id(cell): halting})):
            output, states = self.cell(inputs, states, training=self.training)
        dtype = at_least_float32(output.dtype)
        columns = [
            ops.expand_dims(ops.cast(column, dtype), 1)
            for cell in self.act_cells
            for column in halting_of[id(cell)]
        ]
        output = ops.concatenate([ops.cast(output, dtype), *columns], axis=-1)
        return output, [output, *states]
