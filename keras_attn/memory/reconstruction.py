"""The loss by which a memory learns to compress: attention to old states, and to their summary."""

import math

import keras
from keras import ops

from keras_attn.attention.softmax import at_least_float32, attend_logits, query_keys
from keras_attn.backend.replicas import mean_over_replicas
from keras_attn.layers import MultiHeadAttention
from keras_attn.ops.checks import check_that
from keras_attn.ops.shapes import size


def reconstruction_loss(depth, hidden, padding_mask, old, new):
    """Compare attention to `old` states with attention to the `new` ones that replace them.

        sum over layers l of the mean of |A_l(SG(h_l), SG(old_l)) - A_l(SG(h_l), new_l)|^2

    A_l is the attention of block l by content, with its weights frozen, so that the gradient
    reaches the new states only. The mean is over heads, components and those real queries whose row
    has old states.

    Args:
        depth: a `Stack`.
        hidden: (B, L, T, D), the inputs of its blocks, from which they make queries.
        padding_mask: bool (B, T), True where a query is real, or None.
        old, new: pairs of states (B, L, S, D) and a mask (B, S) of those that there are.
    """
    is_counted = ops.any(old[1], axis=1, keepdims=True)  # (B, 1)
    is_counted = ops.broadcast_to(is_counted, (size(hidden, 0), size(hidden, 2)))
    if padding_mask is not None:
        is_counted = ops.logical_and(is_counted, ops.cast(padding_mask, "bool"))
    hidden, total = ops.stop_gradient(hidden), 0.0
    for layer, block in enumerate(depth.blocks):
        attend = _attention_by_content(block, hidden[:, layer])
        wanted = ops.stop_gradient(attend(old[0][:, layer], old[1]))
        squares = ops.square(attend(new[0][:, layer], new[1]) - wanted)
        squares = ops.mean(squares, axis=(1, 3))  # (B, T)
        weights = ops.cast(is_counted, squares.dtype)
        total = total + mean_over_replicas(squares * weights, ops.sum(weights))
    return total


def _attention_by_content(block, x):
    """Return a function that attends from x (B, T, D) to states by a block's frozen weights.

    It maps states (B, S, D) and their mask (B, S) to heads (B, N, T, Hv), at least float32.
    """
    attention, residual = block.attention, block.residual
    is_known = isinstance(attention, MultiHeadAttention)
    check_that(is_known, "a `MultiHeadAttention`, for a memory that learns", attention=attention)
    repeats = attention.num_heads // attention.num_key_value_heads

    def heads(x, *names):
        variables = [*attention.variables, *residual.variables]
        frozen = [(variable, ops.stop_gradient(variable.value)) for variable in variables]
        with keras.StatelessScope(frozen):
            return attention.project(residual.before(x), *names)

    (query,) = heads(x, "query")

    def attend(states, mask):
        key, value = heads(states, "key", "value")
        if repeats > 1:
            key, value = ops.repeat(key, repeats, axis=1), ops.repeat(value, repeats, axis=1)
        logits = query_keys(query, key) / math.sqrt(attention.key_dim)
        output, _ = attend_logits(logits, value, mask[:, None, None])
        return at_least_float32(output)

    return attend
