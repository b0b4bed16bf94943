"""Joining parts of attention into the exact softmax over their union."""

from keras import ops


def merge(parts):
    """The attention over the union of disjoint sets of keys.

        o = sum_r exp(z_r - z) o_r,   z = log sum_r exp(z_r)

    Args:
        parts: list of (output (..., T, Hv), log weight (..., T, 1) float32): what a softmax over
            each set gave, and the log of the sum of its exponentials.

    Returns:
        The same of the union. A part without keys, whose log weight is `FORBIDDEN`, has no weight;
        where no part has keys, the output is zero.
    """
    if len(parts) == 1:
        return parts[0]
    logs = [log_weight for _, log_weight in parts]
    top = logs[0]
    for log_weight in logs[1:]:
        top = ops.maximum(top, log_weight)
    top = ops.stop_gradient(top)
    weights = [ops.exp(log_weight - top) for log_weight in logs]
    total = sum(weights[1:], weights[0])
    output = sum(
        ops.cast(weight / total, output.dtype) * output
        for weight, (output, _) in zip(weights, parts, strict=True)
    )
    return output, top + ops.log(total)
