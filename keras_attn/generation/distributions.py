"""Distributions over tokens: truncations, and drawing by a uniform number."""

from keras import ops


def bounded(x, least, most):
    """Return a number or a tensor that is nearest to x in [least, most]."""
    return ops.clip(x, least, most) if ops.is_tensor(x) else min(max(x, least), most)


def forbids_all(logits):
    """Return True for the rows (...) of logits (..., V) that allow no token."""
    return ops.equal(ops.max(logits, axis=-1), -float("inf"))


def log_sum_exp(logits, top):
    """Return log sum_v exp(z_v - top) of logits z (..., V), for their largest, top (..., 1)."""
    return ops.log(ops.sum(ops.exp(logits - top), axis=-1, keepdims=True))


def keep_nucleus(probabilities, top_p):
    """Zero all but the smallest set of most likely tokens that reaches `top_p`.

    `probabilities` (B, V) are sorted, the largest first.
    """
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    return ops.where(before < top_p, probabilities, 0.0)


def keep_likely(probabilities, min_p):
    """Zero probabilities (B, V) below `min_p` times the largest of the row."""
    largest = ops.max(probabilities, axis=-1, keepdims=True)
    return ops.where(probabilities >= min_p * largest, probabilities, 0.0)


def keep_typical(probabilities, typical_p):
    """Zero all but the smallest set of most typical tokens that reaches `typical_p`.

    The most typical token is the one whose -log p is closest to the entropy of its row (B, V).
    """
    normalised = probabilities / ops.sum(probabilities, axis=-1, keepdims=True)
    is_possible = normalised > 0
    information = -ops.log(ops.where(is_possible, normalised, 1.0))
    entropy = ops.sum(normalised * information, axis=-1, keepdims=True)
    distance = ops.where(is_possible, ops.abs(information - entropy), float("inf"))
    closest, order = ops.top_k(-distance, distance.shape[-1])
    ordered = ops.take_along_axis(normalised, order, axis=-1)
    before = ops.cumsum(ordered, axis=-1) - ordered
    count = ops.sum(ops.cast(before < typical_p, "int32"), axis=-1, keepdims=True)
    farthest = -ops.take_along_axis(closest, count - 1, axis=-1)
    return ops.where(distance <= farthest, probabilities, 0.0)


def draw(probabilities, numbers):
    """Draw an index from each row by a uniform number in [0, 1).

    Args:
        probabilities: (B, V), which need not sum to 1.
        numbers: (B,).

    Returns:
        The indices int32 (B,), and their probabilities (B,) after normalisation.
    """
    cumulative = ops.cumsum(probabilities, axis=-1)
    total = cumulative[:, -1:]
    below = ops.cast(cumulative <= ops.expand_dims(numbers, 1) * total, "int32")
    # A uniform number that rounds up to the total would select a token after the last kept one.
    last = ops.sum(ops.cast(cumulative < total, "int32"), axis=-1)
    chosen = ops.minimum(ops.sum(below, axis=-1), last)
    probability = ops.take_along_axis(probabilities, ops.expand_dims(chosen, 1), axis=-1) / total
    return chosen, probability[:, 0]
