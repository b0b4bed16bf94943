"""A wrapper that keeps a model's memory between batches."""

import contextlib
import inspect

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.backend.operations import require
from keras_attn.backend.replicas import num_replicas, num_shares, replicas_of
from keras_attn.ops.checks import check_shape, check_sizes
from keras_attn.ops.shapes import size, slice_axis
from keras_attn.registry import BuildsOptimizer


@registry.register
class StatefulSegments(registry.Configurable, BuildsOptimizer, keras.Model):
    """Keep a model's memory between batches, for `fit`, `evaluate` and `predict`.

        outputs_t, memory_{t+1} = model(segment_t, memory_t),   row b continues row b

    The memory is a variable, saved and restored with the model. It is emptied

    - in a row with a true input `reset`, before the row's segment is read: at the start of a text
      or an episode, as `keras_attn.text.SegmentStreams` marks it;
    - before every epoch of `fit`;
    - when `evaluate` and `predict` begin; they restore it when they end, so that validation and
      training do not mix.

    Calls and the methods for one batch (`train_on_batch`, `predict_on_batch`) continue the previous
    call; the method `reset` empties all rows. A batch may have fewer rows than the memory: they
    continue the first rows. Under a distribution strategy each replica keeps its own rows, so every
    batch must have all rows; each of several processes saves and restores the rows of its own
    replicas. Batches are never shuffled.

    Cost: that of the model, and memory O(B L M D) for the state.

    Use it for training a model with a memory by `fit`, on consecutive segments.

    Args:
        model: a functional model with a memory, such as a `CausalLanguageModel`; any with inputs
            and outputs named `memory` and `memory_length`, an attribute `memory`, a `Memory`
            with these names, and a method `initial_memory(batch_size)`.
        batch_size: int. Number of rows of the memory, over all replicas; by default that of the
            first batch, if its size is static, as in a dataset with `drop_remainder=True`.

    Call arguments:
        inputs: the model's inputs without the memory: a tensor if there is only one, or a dict. The
            dict may hold `reset`, (B,), or (1,) for all rows: boolean, or 0 and 1 for `fit` under a
            strategy.

    Returns:
        The model's outputs without the memory: a tensor if there is only one, such as logits
        (B, T, V), or a dict.

    Raises:
        ValueError: if `model` has no memory, the number of rows is unknown, a batch has more rows
            than the memory, inputs have other names or shapes, or `shuffle` is True.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.memory.StatefulSegments(keras_attn.models.transformer_xl(
        ...     50, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, memory_length=32))
        >>> model.compile("adam", keras_attn.losses.LabelSmoothedCrossentropy())
        >>> text = keras_attn.text.SegmentStreams(range(1, 50), batch_size=2, segment_length=8)
        >>> history = model.fit(text.as_dataset(), verbose=0)

    Differs from the paper: none.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(self, model, batch_size=None, **kwargs):
        super().__init__(**kwargs)
        model = registry.revive(model)
        if getattr(model, "memory", None) is None or not hasattr(model, "initial_memory"):
            raise ValueError(
                "`model` must have a memory, as a `CausalLanguageModel` made with `memory=`. "
                f"Received: {model!r}."
            )
        self.model, self.batch_size, self.state = model, None, {}
        if batch_size is not None:
            check_sizes(batch_size=batch_size)
            self._keep(batch_size)

    def _keep(self, batch_size):
        """Create the variables, one a replica for its part of the rows."""
        if batch_size % num_shares():
            raise ValueError(
                "`batch_size` must be a multiple of the number of replicas. "
                f"Received: batch_size={batch_size}, {num_shares()} replicas."
            )
        rows = batch_size // num_replicas()
        self.batch_size = batch_size
        state = self.model.initial_memory(1)
        self.weight_axes = {name: ("data",) for name in state}
        for name, value in state.items():
            dtype = keras.backend.standardize_dtype(value.dtype)
            self.state[name] = self.add_weight(
                (rows, *value.shape[1:]), "zeros", dtype, trainable=False, autocast=False, name=name
            )
        self.built = True

    def build(self, inputs_shape):
        if self.state:
            return
        if isinstance(inputs_shape, dict):
            inputs_shape = inputs_shape[self._check_names(inputs_shape)[0]]
        if inputs_shape[0] is None:
            raise ValueError(
                "`batch_size` must be given if the size of a batch is not static. "
                "Received: batch_size=None."
            )
        self._keep(inputs_shape[0] * num_replicas())

    def call(self, inputs, training=None):
        inputs = dict(inputs) if isinstance(inputs, dict) else self._named(inputs)
        self._check_names(inputs)
        reset = inputs.pop("reset", None)
        kept = {name: ops.convert_to_tensor(value) for name, value in self.state.items()}
        rows, others = self._num_rows(inputs)
        state = kept
        if others is not None:
            state = {name: slice_axis(value, 0, rows, axis=0) for name, value in kept.items()}
        if reset is not None:
            lengths = state["memory_length"]
            # Flatten before the check: the rank of a dataset's tensor may be unknown.
            reset = ops.reshape(ops.cast(reset, "bool"), (-1,))
            check_shape(reset, "reset", (1,), tuple(lengths.shape))
            reset = ops.broadcast_to(reset, ops.shape(lengths))
            state = self.model.memory.reset(state, reset)
        outputs = dict(self.model({**inputs, **state}, training=training))
        for name, variable in self.state.items():
            new = outputs.pop(name)
            if others is not None:
                new = ops.concatenate([new, slice_axis(kept[name], rows, others, axis=0)], axis=0)
            variable.assign(new)
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def _named(self, tensor):
        inputs = {name: x for name, x in self.model.input.items() if name not in self.state}
        names = [name for name, x in inputs.items() if not self.model.get_layer(x.name).optional]
        if len(names) > 1:
            raise ValueError(
                f"`inputs` must be a dict of {names}. Received: a tensor of shape {tensor.shape}."
            )
        return {names[0]: tensor}

    def _check_names(self, inputs):
        """Return the names of the given inputs of the model."""
        state = "memory", *self.model.memory.lengths
        known = [name for name in self.model.input if name not in state]
        names = [name for name in inputs if name != "reset"]
        if not names or not set(names) <= set(known):
            raise ValueError(
                f"`inputs` must be a dict of {known} and, to empty rows, `reset`. "
                f"Received: {list(inputs)}."
            )
        return names

    def _num_rows(self, inputs):
        """Return the number of rows of the batch, and of the other rows; None if there are none."""
        kept = self.state["memory_length"].shape[0]
        rows = size(next(iter(inputs.values())), 0)
        problem = (
            "A batch cannot have more rows than the memory: pass the largest number of rows as "
            f"`batch_size`. Received: {{}} rows, {kept} are kept."
        )
        if not isinstance(rows, int):
            rows = require(rows <= kept, problem.format("more"), rows)
        elif rows > kept:
            raise ValueError(problem.format(rows))
        elif rows == kept:
            return rows, None
        return rows, kept - rows

    def reset(self):
        """Empty the memory of all rows."""
        for variable in self.state.values():
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    @contextlib.contextmanager
    def _emptied(self):
        """Empty the memory inside the context, and restore it afterwards."""
        parts = [part for variable in self.state.values() for part in replicas_of(variable)]
        before = [ops.copy(part) for part in parts]
        self.reset()
        try:
            yield
        finally:
            self.reset()
            for part, value in zip(parts, before, strict=True):
                part.assign(value)

    def fit(self, *args, **kwargs):
        arguments = inspect.signature(super().fit).bind(*args, **kwargs).arguments
        if arguments.get("shuffle"):
            raise ValueError(
                "Rows that continue those of the previous batch cannot be shuffled. "
                f"Received: shuffle={arguments['shuffle']!r}."
            )
        callbacks = arguments.get("callbacks") or []
        callbacks = getattr(callbacks, "callbacks", callbacks)  # a `CallbackList` has them inside
        each_epoch = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: self.reset())
        arguments["callbacks"] = [each_epoch, *keras.tree.flatten(callbacks)]
        return super().fit(**{**arguments, "shuffle": False})

    def evaluate(self, *args, **kwargs):
        with self._emptied():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args, **kwargs):
        with self._emptied():
            return super().predict(*args, **kwargs)

    def save_own_variables(self, store):
        for name, variable in self.state.items():
            store[name] = np.concatenate([*map(ops.convert_to_numpy, replicas_of(variable))])

    def load_own_variables(self, store):
        for name, variable in self.state.items():
            value, parts = np.asarray(store[name]), replicas_of(variable)
            # Each of several processes has its own file, with the rows of its own replicas.
            kept = variable.shape[0] * len(parts)
            if len(value) != kept:
                raise ValueError(
                    "A memory can only be restored by a model with the same number of rows. "
                    f"Received: a file with {len(value)} rows, {kept} rows are kept."
                )
            for part, rows in zip(parts, np.split(value, len(parts)), strict=True):
                part.assign(rows)
