"""Attention by the fused kernel of `keras.ops.dot_product_attention`, where it gives the same.

The kernel keeps no matrix of scores, as a plan does, and computes a tile without leaving the chip.
It takes half precision, sums products and takes the softmax in float32, and supports only dot
products, masks and causal order. A mask takes 2^15 off a float16 logit, 2^41 off a bfloat16 one: a
forbidden key weighs exactly nothing unless logits differ by about as much.
"""

import keras
from keras import ops

from keras_attn.attention.inputs import PositionRange
from keras_attn.backend.operations import has_fused_attention

# Only JAX has the kernel.
IS_POSSIBLE = keras.backend.backend() == "jax"


def can_fuse(inputs, pattern, uses_plan=False, many_pairs=2**28):
    """Return True if the kernel gives the same, to the rounding of the dtype, and is faster.

    It gives the same for dot products, patterns of positions and weights without dropout. It is
    faster than a matrix of scores and, if `uses_plan`, than a plan of all pairs or half of them.
    From `many_pairs` (B, T, S) on a plan stays: the kernel needs its mask of all pairs, half a
    gigabyte in half precision, where the plan needs none.
    """
    if inputs.score.kernel_scale(inputs.query.shape[-1]) is None or not pattern.is_of_positions:
        return False
    is_refused = inputs.dropout_fn is not None or keras.config.is_flash_attention_enabled() is False
    if is_refused or not has_fused_attention(inputs.query, inputs.key, inputs.value):
        return False
    if not uses_plan or _needs_no_mask(inputs, pattern):
        return True
    batch, _, length, _ = inputs.query.shape
    pairs = batch * length * inputs.key.shape[2]
    return pattern.simple_rule is not None and pairs < many_pairs


def attend_fused(inputs, pattern):
    """Return the output (B, N, T, H) of inputs that `can_fuse`, and None for the scores."""
    tensors = inputs.query, inputs.key, inputs.value
    tensors = query, key, _ = [ops.swapaxes(x, 1, 2) for x in tensors]  # (B, T, N, H)
    mask = None
    if not _needs_no_mask(inputs, pattern):
        mask = inputs.dense_mask(pattern.dense_mask_and_bias(inputs)[0])
        mask = ops.broadcast_to(mask, (*mask.shape[:2], query.shape[1], key.shape[1]))
    scale = inputs.score.kernel_scale(query.shape[-1])
    # Beside a mask that forbids the same, it spares the kernel half of the tiles.
    is_causal = pattern.simple_rule == "causal" and _is_aligned(inputs)
    output = ops.dot_product_attention(*tensors, mask=mask, scale=scale, is_causal=is_causal)
    output = ops.swapaxes(output, 1, 2)
    if mask is None:
        return output, None
    # The kernel gives a fully masked query uniform weights; set its output to zero.
    return output * ops.cast(ops.any(mask, axis=-1, keepdims=True), output.dtype), None


def _needs_no_mask(inputs, pattern):
    """Return True if all pairs are allowed, or all but those that causality forbids."""
    masks = inputs.key_mask, inputs.attention_mask, inputs.documents
    if any(mask is not None for mask in masks):
        return False
    return pattern.simple_rule == "full" or pattern.simple_rule == "causal" and _is_aligned(inputs)


def _is_aligned(inputs):
    """Return True if queries and keys have the same positions in order, as the kernel counts."""
    positions = inputs.query_positions, inputs.key_positions
    length, num_keys = inputs.query.shape[2], inputs.key.shape[2]
    return all(isinstance(x, PositionRange) for x in positions) and length == num_keys is not None
