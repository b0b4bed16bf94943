"""Boolean masks, True = may attend."""

from keras import ops
from keras.src.backend.common.masking import get_keras_mask

from keras_attn.ops.checks import check_boolean, check_shape


def keras_mask(x):
    """Keras's implicit mask (B, T) of `x`, or None."""
    # Not the attribute itself: what JAX traces has none, and Keras keeps its mask elsewhere.
    return get_keras_mask(x)


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


def mask_and_bias(operands, pattern, attention_mask=None, present=None):
    """What is added to and forbidden in the matrix of scores of a layer.

    Args:
        operands: `keras_attn.ops.operands.Operands`.
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
