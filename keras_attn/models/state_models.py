"""Functional models that read states: step by step with a memory, or in stored episodes."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.shapes import size


@registry.register
class SequenceModel(Model):
    """Compute an output for each state from it and those before: f(s_1 .. s_t).

        outputs_t = Head(Depth(Embedding(s))_t)

    For inputs that are no tokens: observations of an actor, measurements. A functional
    `keras.Model`, called with a dict of its inputs. It reads states
    segment by segment, or one by one, and the memory is an input and an output; a
    `keras_attn.memory.StatefulSegments` keeps it between the batches of `fit`. At an episode's end
    the memory is reset: by `model.memory.reset(state, rows)` between two calls, or by `starts` if
    episodes begin inside a segment. No step attends beyond the start of its own episode.

    Args:
        state_shape: int or tuple of ints. Shape of one state.
        embedding: a layer from states (B, T, *state_shape) to (B, T, D).
        depth: of the depth axis, one that accepts a memory; its blocks' pattern is causal.
        memory: a `keras_attn.memory.Memory`, such as a `SegmentMemory`.
        heads: dict of an output's name and its layer, from (B, T, D), or the number of units of a
            float32 dense layer. By default the only output is that of `depth`, `output`.

    Call arguments:
        states: (B, T, *state_shape).
        memory, memory_length: (B, L, M, D) and int32 (B,), at first from `initial_memory`.
        starts: optional, bool (B, T), True at the first step of an episode.
        padding_mask: optional, bool (B, T), False at padding, which must be at the end of a row
            and is not remembered.

    Returns:
        A dict of the heads' outputs (B, T, ...), by name, and the next segment's `memory` and
        `memory_length`.

    Raises:
        ValueError: if a pattern in `depth` is not causal, `depth` accepts no memory, or a head has
            the name of a part of the memory.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.gtrxl(5, {"policy": 4, "value": 1}, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, memory_length=6)
        >>> outputs = model({"states": np.ones((3, 1, 5)), **model.initial_memory(3)})
        >>> outputs["policy"].shape, outputs["memory_length"].numpy().tolist()
        (TensorShape([3, 1, 4]), [1, 1, 1])

    Differs from the paper: none.

    Reference: [Parisotto et al., 2019](https://arxiv.org/abs/1910.06764), sections 2.2 and 3; the
        memory: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    parts = ("state_shape", "embedding", "depth", "memory", "heads")

    def __init__(self, state_shape, embedding, depth, memory, heads=None, **kwargs):
        is_tuple = isinstance(state_shape, (tuple, list))
        state_shape = tuple(state_shape) if is_tuple else (state_shape,)
        for length in state_shape:
            check_sizes(state_shape=length)
        assembly.check_layers(embedding=embedding, depth=depth)
        assembly.check_memory(memory)
        assembly.check_causal(depth)
        if heads is not None:
            memory_names = "memory", *memory.lengths
            heads = {name: _head(name, layer, memory_names) for name, layer in heads.items()}
        states = keras.Input((None, *state_shape), name="states")
        optional = {
            name: keras.Input((None,), dtype="bool", name=name, optional=True)
            for name in ("starts", "padding_mask")
        }
        x = embedding(states)
        state = assembly.memory_inputs(memory, depth, x.shape[-1])
        inputs = {"states": states, **optional, **state}
        slots = assembly.slots_of(state)
        mask, remembered, kept = _Episodes()(**optional, **slots)
        x, read = depth(x, padding_mask=optional["padding_mask"], attention_mask=mask, **slots)
        outputs = {"output": x}
        if heads is not None:
            outputs = {name: head(x) for name, head in heads.items()}
        state = memory.extend({**state, "memory_length": kept}, read, remembered, depth)
        super().__init__(inputs=inputs, outputs={**outputs, **state}, **kwargs)
        self.state_shape, self.embedding = state_shape, embedding
        self.depth, self.memory, self.heads = depth, memory, heads

    def initial_memory(self, batch_size):
        """Return the memory before the first segment: `memory` and `memory_length`."""
        _, num_layers, _, hidden_dim = self.input["memory"].shape
        return self.memory.initial(batch_size, num_layers, hidden_dim, self.depth.compute_dtype)


def _head(name, layer, memory_names):
    if name in memory_names:
        raise ValueError(
            f"`heads` cannot have the names {memory_names}, which are the memory's. "
            f"Received: {name!r}."
        )
    if isinstance(layer, int):
        # Outputs of a model are float32 under any policy, logits above all.
        layer = keras.layers.Dense(layer, dtype="float32", name=name)
    return divide_outputs(layer)


@registry.register
class _Episodes(keras.Operation):
    """`episode_masks` as one operation that a functional model can have as a node."""

    def call(self, starts, padding_mask, memory, memory_length):
        if padding_mask is not None:
            padding_mask = ops.cast(padding_mask, "bool")
        if starts is None:
            return None, padding_mask, memory_length
        starts = ops.cast(starts, "bool")
        return episode_masks(starts, padding_mask, memory_length, size(memory, 2))


def episode_masks(starts, real, memory_length, num_slots):
    """Return masks by which no step of a segment attends beyond the start of its own episode.

    `starts` (B, T) is True at the first steps of episodes; `real` (B, T) is False at padding, or
    None; `memory_length` (B,) counts the filled ones of the `num_slots` = M slots of the memory.
    Return an attention mask, bool (B, T, M + T); a mask of the steps of the last episode, bool
    (B, T); and the number of the memory's slots that belong to it, int32 (B,).
    """
    if real is not None:
        starts = ops.logical_and(starts, real)
    episode = ops.cumsum(ops.cast(starts, "int32"), axis=1)  # (B, T), 0 for the memory's own
    is_memorys = ops.expand_dims(ops.equal(episode, 0), 2)  # (B, T, 1)
    slots = ops.broadcast_to(is_memorys, (*ops.shape(episode), num_slots))
    same = ops.equal(ops.expand_dims(episode, 2), ops.expand_dims(episode, 1))  # (B, T, T)
    last = ops.max(episode, axis=1, keepdims=True)
    is_last = ops.equal(episode, last)
    if real is not None:
        is_last = ops.logical_and(is_last, real)
    memory_length = ops.where(last[:, 0] > 0, 0, ops.cast(memory_length, "int32"))
    return ops.concatenate([slots, same], axis=2), is_last, memory_length


@registry.register
class TrajectoryModel(Model):
    """Predict each action from the wanted return, the state, and all steps before.

        action_t = f(R_0, s_0, a_0, .., R_t, s_t) = act(Depth(Embedding(R, s, a))_3t+1 W + b)

    A functional `keras.Model`, called with a dict of its inputs. It learns from stored episodes, in
    which R_t is the sum of the rewards from step t on. To act, give as R_t the wanted return less
    the rewards so far, and any last action, which is not read.

    Args:
        state_size: int. Size S of a state.
        embedding: a `TrajectoryEmbedding`.
        depth: of the depth axis; its blocks' pattern is causal.
        activation: name or function, of the actions; by default tanh, or none for discrete actions,
            whose outputs are logits.
        dropout: float. Dropout rate of the embeddings.

    Call arguments:
        returns: (B, T).
        states: (B, T, S).
        actions: (B, T, A), or int32 (B, T) if they are discrete.
        steps: optional int32 (B, T), steps of the episode, by default 0 .. T-1.
        padding_mask: optional bool (B, T), False at padding.

    Returns:
        (B, T, A), float32.

    Raises:
        ValueError: if a pattern in `depth` is not causal, or `state_size` < 1.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.decision_transformer(3, 2, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_steps=10)
        >>> model.output.shape
        (None, None, 2)

    Differs from the paper: states and returns are not predicted.

    Reference: [Chen et al., 2021](https://arxiv.org/abs/2106.01345), section 3, algorithm 1.
    """

    parts = ("state_size", "embedding", "depth", "activation", "dropout")

    def __init__(self, state_size, embedding, depth, activation=None, dropout=0.0, **kwargs):
        check_sizes(state_size=state_size)
        assembly.check_layers(embedding=embedding, depth=depth)
        assembly.check_causal(depth)
        discrete, size = embedding.discrete, embedding.action_size
        action = {"shape": (None,), "dtype": "int32"} if discrete else {"shape": (None, size)}
        mask = keras.Input((None,), dtype="bool", name="padding_mask", optional=True)
        inputs = {
            "returns": keras.Input((None,), name="returns"),
            "states": keras.Input((None, state_size), name="states"),
            "actions": keras.Input(name="actions", **action),
            "steps": assembly.token_input("steps", optional=True),
        }
        drop = Dropout(dropout, dtype=embedding.dtype_policy, name="drop")
        x = assembly.drop_symbolic(drop, embedding(**inputs))
        x = _OfStates()(depth(x, padding_mask=_OfEachVector()(mask)))
        default = None if discrete else "tanh"
        # Outputs of a model are float32 under any policy.
        head = keras.layers.Dense(size, activation or default, dtype="float32", name="head")
        super().__init__(
            inputs={**inputs, "padding_mask": mask}, outputs=divide_outputs(head)(x), **kwargs
        )
        self.state_size, self.embedding, self.depth = state_size, embedding, depth
        self.activation, self.dropout, self.head = activation, dropout, head


@registry.register
class _OfEachVector(keras.Operation):
    """Repeat the mask of steps (B, T) for the three vectors of each, (B, 3 T); None stays None."""

    def call(self, mask):
        return None if mask is None else ops.repeat(ops.cast(mask, "bool"), 3, axis=1)


@registry.register
class _OfStates(keras.Operation):
    """Select the outputs (B, T, D) at the states, the second of three vectors of each step."""

    def call(self, x):
        return x[:, 1::3]
