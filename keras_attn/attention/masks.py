"""Boolean masks, True = may attend."""

from keras import ops

from keras_attn.compat.keras_masks import get_keras_mask as keras_mask
from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.ops.checks import check_boolean, check_shape

__all__ = [
    "attach_keras_mask",
    "check_segments",
    "combine_masks",
    "join_masks",
    "keras_mask",
    "same_segment",
    "segment_positions",
    "spread_attention_mask",
    "spread_masks",
    "spread_padding_mask",
]


def attach_keras_mask(x, mask, name):
    """Make a boolean `mask` (B, T) the implicit Keras mask of `x` (B, T, D)."""
    mask = ops.convert_to_tensor(mask)
    check_boolean(mask, name)
    check_shape(mask, name, tuple(x.shape[:2]), broadcast=True)
    set_keras_mask(x, ops.cast(mask, "bool"))


def combine_masks(*masks):
    """Return the logical and of those masks that are not None; None if there is none."""
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    combined = present[0]
    for mask in present[1:]:
        combined = ops.logical_and(combined, mask)
    return combined


def join_masks(*parts):
    """Return the padding mask (B, S) of consecutive parts; None if no part has one.

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
    """Check a mask (B, S) and return it as (B, 1, S); None stays None."""
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    check_boolean(mask, name)
    check_shape(mask, name, (batch, num_keys), broadcast=True)
    return ops.cast(mask, "bool")[:, None, :]


def spread_attention_mask(mask, batch, num_heads, length, num_keys):
    """Check a mask (T, S), (B, T, S) or (B, N, T, S) and return it with four axes.

    None stays None. Three axes are batch, query, key, as in Keras.
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


def spread_masks(query, key, value_mask=None, key_mask=None, attention_mask=None):
    """Check the masks of an attention layer for heads (B, N, T, H) and (B, N, S, H).

    Returns:
        One mask of keys (B, 1, S), and the attention mask with four axes; None for no mask.
    """
    batch, num_heads, length, _ = query.shape
    num_keys = key.shape[2]
    of_keys = combine_masks(
        spread_padding_mask(value_mask, batch, num_keys, "value_mask"),
        spread_padding_mask(key_mask, batch, num_keys, "key_mask"),
    )
    return of_keys, spread_attention_mask(attention_mask, batch, num_heads, length, num_keys)


def check_segments(segment_ids, token_ids, name, of_tokens):
    """Return segment ids as an int32 tensor; refuse them unless there is one for each token.

    Any numbers are cast, as a functional model casts its inputs: under a `tf.distribute` strategy
    Keras first shows a model the mean of all replicas' batches, which is not an integer.
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
    """Return the attention mask (B, T, S) of tokens that belong to the same sequence.

    Args:
        segment_ids: int32 (B, T), 1 or more the sequence within the row, 0 padding.
        others: int32 (B, S), those of the keys; by default the same.
    """
    others = segment_ids if others is None else others
    of_queries, of_keys = segment_ids[:, :, None], others[:, None, :]
    return ops.logical_and(ops.equal(of_queries, of_keys), of_queries > 0)


def segment_positions(segment_ids):
    """Return the position of each token in its own sequence, int32 (B, T); padding has 0."""
    positions = ops.arange(ops.shape(segment_ids)[1], dtype="int32")
    before = positions[None, :] < positions[:, None]  # (T, T)
    seen = ops.logical_and(same_segment(segment_ids), before)
    return ops.sum(ops.cast(seen, "int32"), axis=2)
