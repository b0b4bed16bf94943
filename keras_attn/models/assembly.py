"""Functions by which models are made of their parts."""

import keras
from keras import ops

from keras_attn import positions, registry, residuals, scores
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.depth import Stack
from keras_attn.feed_forward import PositionMixer
from keras_attn.layers import MultiHeadAttention
from keras_attn.ops.checks import check_that
from keras_attn.part_names import name_layers
from keras_attn.patterns import LSH


def check_layers(**layers):
    """Check that each part of a model is a Keras layer."""
    for name, layer in layers.items():
        check_that(isinstance(layer, keras.layers.Layer), "a Keras layer", **{name: layer})


def check_memory(memory):
    """Check that a part of a model is a memory of segments."""
    wanted = "a memory, such as `memory.SegmentMemory(...)`"
    check_that(hasattr(memory, "extend"), wanted, memory=memory)


def embedding_of(embedding, **holders):
    """Return the embedding, by default that of the first of the other parts that has one."""
    own = (getattr(part, "embedding", None) for part in holders.values())
    embedding = embedding or next(filter(None, own), None)
    if embedding is None:
        names = " or ".join(f"`{name}`" for name in holders)
        received = ", ".join(f"{name}={part!r}" for name, part in holders.items())
        raise ValueError(
            f"`embedding` can only be None where {names} has one. Received: {received}."
        )
    name_layers({"embedding": embedding})
    return embedding


def token_input(name, optional=False):
    """Return a symbolic input of integers (B, T)."""
    return keras.Input((None,), dtype="int32", name=name, optional=optional)


def memory_inputs(memory, depth, hidden_dim):
    """Return the symbolic inputs of the state of a memory of segments."""
    if not isinstance(depth, Stack):
        raise ValueError(
            "`depth` must be one whose call accepts a memory, as a `Stack`'s does. "
            f"Received: depth of type {type(depth).__name__}."
        )
    num_layers, width = memory.slot_shape(depth, hidden_dim)
    slots = keras.Input((num_layers, None, width), dtype=depth.compute_dtype, name="memory")
    return {
        "memory": slots,
        **{name: keras.Input((), dtype="int32", name=name) for name in memory.lengths},
    }


def slots_of(state):
    """Return the part of the state of a memory that a depth reads."""
    return {name: state[name] for name in ("memory", "memory_length")}


def position_of(identifier, embedding, name="position"):
    """Return the position for a name or an object, in the embedding's dtype policy."""
    if identifier is None:
        return None
    position = positions.get(identifier, dtype=embedding.dtype_policy)
    name_layers({name: position})
    return position


def split_position(identifier, **own):
    """Return the position for a name or an object that a model adds to embeddings, or None.

    Return with it a function that makes the position of the heads of one attention, or None. `own`
    has a function for each name that means a position with the model's own arguments.
    """
    if isinstance(identifier, str) and identifier in own:
        identifier = own[identifier]()
    position = None if identifier is None else positions.get(identifier)
    if position is None or not position.acts_on_heads:
        return position, lambda: None
    return None, lambda: registry.copy(position)


def residual_of(identifier, norm):
    """Return the residual for a name or an object; `norm` is the norm of one made from a name."""
    # `ReZero` has no norm unless it is given one as an object.
    has_norm = isinstance(identifier, str) and identifier != "re_zero"
    return residuals.get(identifier, **({"norm": norm} if has_norm else {}))


def real_tokens(token_ids, pad_id):
    """Return the padding mask (B, T) of ids; None if no id is padding."""
    return None if pad_id is None else ops.not_equal(token_ids, pad_id)


def embed(embedding, position, token_ids, positions=None):
    """Embed tokens and add their positions, by default 0 .. T-1, if there is a `position`."""
    x = embedding(token_ids)
    return x if position is None else position(x, positions)


def drop_symbolic(drop, x):
    """Apply a dropout to a symbolic tensor, and leave `training` to calls of the model.

    Keras records the default of a call, `training=False`, and passes it to all later layers.
    """
    return drop(x, training=None)


def last_states(x, last):
    """Return the states (B, 1, D) at the indices `last` (B, 1) of `x`; all of them for None."""
    return x if last is None else ops.take_along_axis(x, ops.expand_dims(last, -1), axis=1)


def max_num_positions(*layers):
    """Return the smallest `max_length` of the positions in some layers; None for no limit."""
    parts = [part for layer in layers if layer is not None for part in flatten_layers(layer)]
    lengths = [part.max_length for part in parts if isinstance(part, positions.Position)]
    return min((length for length in lengths if length is not None), default=None)


def context_score(score):
    """Return the score of a cross-attention: "scaled_dot" in the place of one with distances."""
    return scores.get("scaled_dot") if score.uses_positions else score


def check_causal(depth):
    """Raise a `ValueError` where a layer of `depth` lets a position depend on a later one."""
    parts = list(flatten_layers(depth))
    contexts = [getattr(part, "cross_attention", None) for part in parts]
    to_context = {id(x) for layer in contexts if layer is not None for x in flatten_layers(layer)}
    reason = "since each token is predicted from those before it"
    for layer in parts:
        is_attention = isinstance(layer, MultiHeadAttention) and id(layer) not in to_context
        if is_attention and not layer.pattern.causal:
            raise ValueError(
                f"The blocks' `pattern` must be causal, {reason}. "
                f"Received: pattern={layer.pattern!r} in the layer {layer.name!r}."
            )
        if isinstance(layer, PositionMixer) and not getattr(layer, "causal", True):
            raise ValueError(
                f"Feed-forward layers that mix positions must have `causal=True`, {reason}. "
                f"Received: causal=False in the layer {layer.name!r}."
            )


def check_packable(*depths):
    """Raise a `ValueError` where a layer would mix the sequences of a packed row."""
    for depth in depths:
        if not isinstance(depth, Stack):
            raise ValueError(
                "Packed rows need a depth whose call accepts `segment_ids`, as a `Stack` does. "
                f"Received: depth of type {type(depth).__name__}."
            )
        for layer in flatten_layers(depth):
            pattern = getattr(layer, "pattern", None)
            if isinstance(pattern, LSH) and pattern.num_buckets is None:
                raise ValueError(
                    "Packed rows need `num_buckets`, whose default depends on the length of a row. "
                    f"Received: pattern={pattern!r} in the layer {layer.name!r}."
                )
            if isinstance(layer, PositionMixer):
                raise ValueError(
                    "Packed rows need feed-forward layers that do not mix positions; others would "
                    "read the neighbouring sequence. "
                    f"Received: {type(layer).__name__} in the layer {layer.name!r}."
                )
            if getattr(layer, "capacity", None) is not None:
                raise ValueError(
                    "Packed rows need experts without a `capacity`, which counts the positions of "
                    f"all sequences. Received: capacity={layer.capacity} in {layer.name!r}."
                )


def declare_axes(layer, **axes):
    """Give a layer of Keras the attribute `weight_axes`, as layers of this package have it.

    The attribute is a dict: for the name of each weight, the mesh axis that divides each of its
    axes. `keras_attn.distribution.ModelParallel` describes it. Return the layer.
    """
    if not hasattr(layer, "weight_axes"):
        layer.weight_axes = axes
    return layer


def divide_outputs(head):
    """Let the outputs of a head be divided among devices, if it is a dense layer. Return it."""
    if isinstance(head, keras.layers.Dense):
        declare_axes(head, kernel=(None, "model"), bias=("model",))
    return head
