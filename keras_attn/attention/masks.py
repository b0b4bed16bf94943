"""Boolean masks, True = may attend."""

from keras import ops

from keras_attn.compat.keras_masks import get_keras_mask, set_keras_mask
from keras_attn.ops.checks import check_boolean, check_shape


def keras_mask(x):
    """Keras's implicit mask (B, T) of `x`, or None."""
    # Not the attribute itself: what JAX traces has none, and Keras keeps its mask elsewhere.
    return get_keras_mask(x)


def attach_keras_mask(x, mask, name):
    """Make a boolean `mask` (B, T) the implicit Keras mask of `x` (B, T, D)."""
    mask = ops.convert_to_tensor(mask)
    check_boolean(mask, name)
    check_shape(mask, name, tuple(x.shape[:2]), broadcast=True)
    set_keras_mask(x, ops.cast(mask, "bool"))


def combine_masks(*masks):
    """Logical and of those masks that are not None; None if there is none."""
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    combined = present[0]
    for mask in present[1:]:
        combined = ops.logical_and(combined, mask)
    return combined


def join_masks(*parts):
    """The padding mask (B, S) of parts one after the other; None if none has one.

    Args:
        parts: tuples of a tensor (B, S_1, D), its mask, bool (B, S_1) or None, and the mask's name.
    """
    if all(mask is None for _, mask, _ in parts):
        return None
    masks = []
    for x, mask, name in parts:
        if mask is None:
            mask = ops.ones_like(x[:, :, 0], dtype="bool")
        mask = ops.convert_to_tensor(mask)
        check_boolean(mask, name)
        check_shape(mask, name, tuple(x.shape[:2]), broadcast=True)
        masks.append(ops.broadcast_to(ops.cast(mask, "bool"), ops.shape(x)[:2]))
    return ops.concatenate(masks, axis=1)


def spread_padding_mask(mask, batch, num_keys, name="padding_mask"):
    """(B, S) -> (B, 1, S), checked; None stays None."""
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    check_boolean(mask, name)
    check_shape(mask, name, (batch, num_keys), broadcast=True)
    return ops.cast(mask, "bool")[:, None, :]


def spread_attention_mask(mask, batch, num_heads, length, num_keys):
    """(T, S), (B, T, S) or (B, N, T, S) -> four axes, checked; None stays None.

    Three axes are batch, query, key, as in Keras.
    """
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    pairs = (length, num_keys)
    check_boolean(mask, "attention_mask")
    check_shape(
        mask, "attention_mask", pairs, (batch, *pairs), (batch, num_heads, *pairs), broadcast=True
    )
    mask = ops.cast(mask, "bool")
    if len(mask.shape) == 2:
        return mask[None, None]
    return mask[:, None] if len(mask.shape) == 3 else mask


def mask_and_bias(operands, pattern, attention_mask=None, present=None):
    """What is added to and forbidden in the matrix of scores of a layer.

    Args:
        operands: `keras_attn.attention.inputs.AttentionInputs`.
        pattern: of the pattern axis.
        attention_mask: bool tensor or None, as a layer gets it.
        present: bool (S,), the keys of a cache that are there; None for all.

    Returns:
        Bool, broadcastable to (B, N, T, S), and float32, each None if there is none.
    """
    batch, num_heads, length, _ = operands.query.shape
    mask, bias = pattern.matrix(operands)
    mask = combine_masks(
        mask,
        None if present is None else present[None, None, None],
        None if operands.real is None else operands.real[:, :, None],
        spread_attention_mask(attention_mask, batch, num_heads, length, operands.key.shape[2]),
    )
    return mask, bias


def check_segments(segment_ids, token_ids, name, of_tokens):
    """Segment ids as an int32 tensor, refused unless there is one for each token.

    Any numbers are cast, as a functional model casts its inputs: under a `tf.distribute` strategy
    Keras first shows a model the mean of all replicas' batches, which is no integer.
    """
    segment_ids, token_ids = map(ops.convert_to_tensor, (segment_ids, token_ids))
    if len(segment_ids.shape) != 2:
        check_shape(segment_ids, name, (None, None))
    for size, wanted in zip(segment_ids.shape, token_ids.shape, strict=True):
        if None not in (size, wanted) and size != wanted:
            raise ValueError(
                f"`{name}` must have the shape of `{of_tokens}`, {tuple(token_ids.shape)}. "
                f"Received: shape={tuple(segment_ids.shape)}."
            )
    return ops.cast(segment_ids, "int32")


def same_segment(segment_ids, others=None):
    """Which tokens stand in the same sequence: an attention mask, bool (B, T, S).

    Args:
        segment_ids: int32 (B, T), 1 or more the sequence within the row, 0 padding.
        others: int32 (B, S), those of the keys; by default the same.
    """
    others = segment_ids if others is None else others
    of_queries, of_keys = segment_ids[:, :, None], others[:, None, :]
    return ops.logical_and(ops.equal(of_queries, of_keys), of_queries > 0)


def segment_positions(segment_ids):
    """How many tokens of its own sequence stand before each, int32 (B, T); padding is at 0."""
    places = ops.arange(ops.shape(segment_ids)[1], dtype="int32")
    before = places[None, :] < places[:, None]  # (T, T)
    seen = ops.logical_and(same_segment(segment_ids), before)
    return ops.sum(ops.cast(seen, "int32"), axis=2)
