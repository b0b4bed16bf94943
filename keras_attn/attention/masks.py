"""Boolean masks, True = may attend."""

from keras import ops

from keras_attn.attention.inputs import combine_masks
from keras_attn.compat.keras_masks import get_keras_mask, set_keras_mask
from keras_attn.ops.checks import check_mask, check_shape
from keras_attn.ops.shapes import same_shape

keras_mask = get_keras_mask


def attach_keras_mask(x, mask, name):
    """Make a boolean `mask` (B, T) the implicit Keras mask of `x` (B, T, D)."""
    set_keras_mask(x, check_mask(mask, name, tuple(x.shape[:2])))


def join_masks(*parts):
    """Return the padding mask (B, S) of consecutive parts; None if no part has one.

    A part is a tensor (B, S_1, D), its mask, bool (B, S_1) or None, and the mask's name.
    """
    if all(mask is None for _, mask, _ in parts):
        return None
    masks = []
    for x, mask, name in parts:
        if mask is None:
            masks.append(ops.ones_like(x[:, :, 0], dtype="bool"))
        else:
            mask = check_mask(mask, name, tuple(x.shape[:2]))
            masks.append(ops.broadcast_to(mask, ops.shape(x)[:2]))
    return ops.concatenate(masks, axis=1)


def spread_padding_mask(mask, batch, num_keys, name="padding_mask"):
    """Check a mask (B, S) and return it as (B, 1, S); None stays None."""
    return None if mask is None else check_mask(mask, name, (batch, num_keys))[:, None, :]


def spread_attention_mask(mask, batch, num_heads, length, num_keys):
    """Check a mask (T, S), (B, T, S) or (B, N, T, S) and return it with four axes; None stays."""
    if mask is None:
        return None
    pairs = (length, num_keys)
    shapes = pairs, (batch, *pairs), (batch, num_heads, *pairs)
    mask = check_mask(mask, "attention_mask", *shapes)
    if len(mask.shape) == 2:
        return mask[None, None]
    return mask[:, None] if len(mask.shape) == 3 else mask


def spread_masks(query, key, value_mask=None, key_mask=None, attention_mask=None):
    """Check the masks of an attention layer for heads (B, N, T, H) and (B, N, S, H).

    Return one mask of keys (B, 1, S), and the attention mask with four axes; None for no mask.
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
    check_shape(segment_ids, name, (None, None))
    if not same_shape(segment_ids.shape, token_ids.shape):
        raise ValueError(
            f"`{name}` must have the shape of `{of_tokens}`, {tuple(token_ids.shape)}. "
            f"Received: shape={tuple(segment_ids.shape)}."
        )
    return ops.cast(segment_ids, "int32")


def same_segment(segment_ids, others=None):
    """Return the attention mask (B, T, S) of tokens that belong to the same sequence.

    `segment_ids` (B, T), and `others` (B, S) if keys have their own, are int32; 0 is padding.
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
