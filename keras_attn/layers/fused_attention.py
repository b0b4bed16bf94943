"""Attention by the fused kernel of `keras.ops.dot_product_attention`, where that is the same.

The kernel keeps no matrix of scores, as a plan does, and computes a tile without leaving the chip.
It takes half precision, sums products and takes the softmax in float32, and knows of dot products,
of masks and of the order of positions only. A mask takes 2^15 off a float16 logit, 2^41 off a
bfloat16 one: a forbidden key weighs exactly nothing unless logits differ by about as much.
"""

import keras
from keras import ops

from keras_attn.attention.masks import mask_and_bias
from keras_attn.attention.positions import PositionRange
from keras_attn.backend.operations import has_fused_attention
from keras_attn.patterns import Causal, Dense
from keras_attn.scores import DotProduct

# The pairs (B, T, S) from which on a plan stays: the kernel wants its mask of all pairs, which in
# half precision then takes half a gigabyte, where the plan needs none.
MANY_PAIRS = 2**28


def fuses(operands, pattern, attention_mask=None, planned=False):
    """Whether a kernel gives what a layer computes, to the rounding of the dtype, and faster.

    It gives the same for dot products, patterns of positions and undropped weights. It is faster
    than a matrix of scores, and than a plan that computes all pairs or half of them.

    Args:
        operands: `AttentionInputs`.
        pattern: of the pattern axis.
        attention_mask: bool tensor or None.
        planned: bool. Whether the choice is between the kernel and the pattern's plan.
    """
    # A subclass of a score may compute anything.
    if type(operands.score) is not DotProduct or not pattern.is_of_positions:
        return False
    if operands.drop is not None or keras.config.is_flash_attention_enabled() is False:
        return False
    if not has_fused_attention(operands.query, operands.key, operands.value):
        return False
    if not planned:
        return True
    batch, _, length, _ = operands.query.shape
    pairs = batch * length * operands.key.shape[2]
    return _is_open(operands, pattern, attention_mask) or (
        type(pattern) in (Dense, Causal) and pairs < MANY_PAIRS
    )


def attend_fused(operands, pattern, attention_mask=None):
    """What `fuses` speaks of: the output (B, N, T, H)."""
    tensors = operands.query, operands.key, operands.value
    query, key, value = (ops.swapaxes(x, 1, 2) for x in tensors)  # (B, T, N, H)
    mask = None
    if not _is_open(operands, pattern, attention_mask):
        mask, _ = mask_and_bias(operands, pattern, attention_mask)
        mask = ops.broadcast_to(mask, (*mask.shape[:2], query.shape[1], key.shape[1]))
    output = ops.dot_product_attention(
        *(query, key, value),
        mask=mask,
        scale=None if operands.score.scaled else 1.0,
        # Beside a mask that forbids the same, it spares the kernel half of the tiles.
        is_causal=type(pattern) is Causal and _is_aligned(operands),
    )
    output = ops.swapaxes(output, 1, 2)
    if mask is None:
        return output
    # The kernel takes a query without a key for one that likes all alike.
    return output * ops.cast(ops.any(mask, axis=-1, keepdims=True), output.dtype)


def _is_open(operands, pattern, attention_mask):
    """Whether every pair is allowed, or every one but those that causality forbids."""
    if operands.real is not None or attention_mask is not None:
        return False
    return type(pattern) is Dense or type(pattern) is Causal and _is_aligned(operands)


def _is_aligned(operands):
    """Whether queries and keys stand at the same positions, in order.

    The kernel counts both from the first; with more keys than queries ours are the last.
    """
    places = operands.query_positions, operands.key_positions
    length, num_keys = operands.query.shape[2], operands.key.shape[2]
    return all(isinstance(x, PositionRange) for x in places) and length == num_keys is not None
