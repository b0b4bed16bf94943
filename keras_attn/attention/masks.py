"""Boolean masks, True = may attend."""

from keras import ops

from keras_attn.attention.inputs import combine_masks
from keras_attn.backend.loop_invariants import loop_invariant
from keras_attn.compat.keras_masks import get_keras_mask, set_keras_mask
from keras_attn.ops.checks import check_mask

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
    if mask is None:
        return None
    checked = check_mask(mask, name, (batch, num_keys))
    return loop_invariant(mask, "spread", lambda: checked[:, None, :])


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
