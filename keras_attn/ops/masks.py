"""Boolean masks, True = may attend."""

import keras
from keras import ops


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


def check_boolean(mask, name):
    """Refuses additive float masks; 0/1 integers and booleans pass, as booleans."""
    if mask is None:
        return None
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if "float" in dtype:
        raise ValueError(
            f"`{name}` must be boolean, True where attention is allowed. Received: dtype={dtype}. "
            f"An additive mask becomes boolean by `{name} = additive_mask > -1`."
        )
    return ops.cast(mask, "bool")
