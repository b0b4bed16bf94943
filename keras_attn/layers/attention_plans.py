"""The ways to compute attention, and the choice among them."""

from keras_attn.attention import fused, sinks
from keras_attn.attention.linear import attend_linear, can_attend_linear
from keras_attn.attention.softmax import attend_dense
from keras_attn.patterns import Dense

DENSE = Dense()

# Each computes the output, and the scores or None.
PLANS = {
    "dense": attend_dense,
    "blockwise": lambda inputs, pattern: pattern.attend_blockwise(inputs),
    "fused": fused.attend_fused,
    "linear": attend_linear,
}
PLANS_WITH_SINKS = {
    "dense": sinks.attend_dense_with_sinks,
    "blockwise": sinks.attend_blockwise_with_sinks,
}


def choose(layer, inputs, pattern, view, positions):
    """Choose the plan among `PLANS`, and the pattern to compute.

    A cache, a mask of pairs and positions from the caller need the dense or the fused plan.
    """
    length, num_keys = inputs.query.shape[2], inputs.key.shape[2]
    is_ordered = inputs.query_segments or positions == (None, None) or inputs.sums is not None
    pattern = of_last_query(pattern, inputs.query, is_ordered)
    is_blockwise = is_ordered and view is None and inputs.attention_mask is None
    if inputs.query_segments and layer.score.uses_positions and not layer.score.is_relative:
        is_blockwise = False  # plans have positions in the row, not in the documents
    if layer.score.is_linear and can_attend_linear(inputs, pattern, is_blockwise):
        if layer.implementation != "dense" or inputs.sums is not None:
            return "linear", pattern
    if is_blockwise and None not in (length, num_keys) and length > num_keys:
        is_blockwise = pattern.simple_rule == "full"  # the first queries precede all keys
    if is_blockwise and layer.implementation == "auto":
        is_blockwise = pattern.prefers_blockwise(length, num_keys)
    elif layer.implementation == "dense":
        is_blockwise = False
    if fused.IS_POSSIBLE and layer.implementation == "auto" and view is None and not layer.sinks:
        if fused.can_fuse(inputs, pattern, is_blockwise):
            return "fused", pattern
    return "blockwise" if is_blockwise else "dense", pattern


def of_last_query(pattern, query, is_ordered):
    """Return the pattern of a query at the last position, which may attend to all keys.

    A mask would cost more. Other queries keep the pattern.
    """
    is_last = query.shape[2] == 1 and is_ordered
    return DENSE if is_last and pattern.simple_rule == "causal" else pattern


def reads_positions(layer, pattern, positions, cache):
    """Return True if the layer needs positions, which cost a decoding step operations."""
    has_keys = cache is not None and "sums" not in cache
    is_simple = has_keys and positions == (None, None) and pattern.simple_rule == "full"
    return not is_simple or layer.position is not None or layer.score.uses_positions
