"""Weights of the intermediate losses during training."""

from keras import ops


def layer_shares(step, total_steps, num_layers, schedule):
    """Return a_l of the layers l = 1 .. n - 1 at a step, float32 (n - 1,)."""
    # The step at which each layer's losses end, rounded up to a whole step for "step", so that no
    # rounding of p can move a boundary.
    ends = [total_steps * layer / (2 * num_layers) for layer in range(1, num_layers)]
    if schedule == "linear":
        return ops.maximum(1.0 - ops.cast(step, "float32") / ops.array(ends, "float32"), 0.0)
    first_without = [-(-total_steps * layer // (2 * num_layers)) for layer in range(1, num_layers)]
    return ops.cast(ops.cast(step, "int32") < ops.array(first_without, "int32"), "float32")
