"""keras_attn: a pattern on queries, keys and values, and the layer around it."""

from ..operations import HEAD_DIM, HEADS
from .attention_inputs import heads, sequence
from .attention_tensorflow import graph_task


def core(
    pattern, arguments, length, gflop, backward=False, score="scaled_dot", keyword_arguments=None
):
    """The plan of a class of `keras_attn.patterns`, by its name, without projections.

    The list and the dict of arguments are of its constructor.
    """
    from keras_attn import patterns, scores
    from keras_attn.attention.inputs import AttentionInputs, PositionRange

    pattern = getattr(patterns, pattern)(*arguments, **(keyword_arguments or {}))
    score = scores.get(score)
    positions = PositionRange(0, length)
    shares_query = score.shares_query

    def attend(query, *others):
        key, value = (query, *others) if shares_query else others
        inputs = AttentionInputs(query, key, value, positions, positions, score)
        return pattern.for_call(inputs, None, None).plan.attend(inputs)[0]

    arrays = heads(length, count=2 if shares_query else 3)
    return graph_task(attend, arrays, gflop, backward)


def layer(length, gflop, backward=False):
    """`MultiHeadAttention` without a matrix of scores, causal, on one sequence."""
    from keras_attn.layers import MultiHeadAttention

    attention = MultiHeadAttention(HEADS, HEAD_DIM, pattern="causal", implementation="blockwise")
    attention.build((1, length, HEADS * HEAD_DIM))
    weights = attention.trainable_variables
    return graph_task(lambda x: attention(x, x), [sequence(length)], gflop, backward, weights)
