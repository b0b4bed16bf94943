"""Boolean masks, True = may attend."""

from keras import ops

from keras_attn.ops.checks import check_boolean, check_shape


def keras_mask(x):
    """Keras's implicit mask (B, T) of `x`, or None."""
    return getattr(x, "_keras_mask", None)


def combine_masks(*masks):
    """Logical and of those masks that are not None; None if there is none."""
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    combined = present[0]
    for mask in present[1:]:
        combined = ops.logical_and(combined, mask)
    return combined


def spread_padding_mask(mask, batch, num_keys):
    """(B, S) -> (B, 1, S), checked; None stays None."""
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    check_boolean(mask, "padding_mask")
    check_shape(mask, "padding_mask", (batch, num_keys), broadcast=True)
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
