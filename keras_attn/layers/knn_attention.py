"""Attention to the segment, and to the best keys of a long memory."""

from keras import ops

from keras_attn.attention.sinks import share_of_keys
from keras_attn.attention.softmax import (
    FORBIDDEN,
    at_least_float32,
    attend_logits_with_weights,
    dense_arguments,
    merge_by_logsumexp,
    query_keys,
)
from keras_attn.backend.operations import softmax_with_logsumexp
from keras_attn.layers.multi_head_attention import MultiHeadAttention
from keras_attn.ops.checks import check_choice, check_shape, check_sizes, check_that
from keras_attn.ops.shapes import pad, size, sizes, slice_axis
from keras_attn.ops.sorting import row_starts, take_rows
from keras_attn.registry import register


@register
class KNNAttention(MultiHeadAttention):
    """Attend to the segment, and to the k keys of a long memory with the largest logits.

        A = softmax(score(Q, K)) V,   A_m = softmax(Q K_m^T / sqrt(H)) V_m over the k best keys

        head = (1 - g) A + g A_m,   g = sigmoid(b);   or one softmax over both

    The memory (B, N, M, H + Hv) holds keys and values of earlier segments, which a
    `keras_attn.memory.KNNMemory` keeps for the one such layer of a `Stack`. The search is exact, by
    the product of each query with all M keys. Logits of the memory have neither a bias of the score
    nor a position, and no gradient passes into it. Queries and keys are normalised by `qk_norm`, so
    that keys of older weights remain alike. Where the memory is empty, and without one, as in
    generation, this is `MultiHeadAttention`. The memory takes time O(T N M H) more, and memory
    O(N T (M + k Hv)).

    Use it for one layer of a language model, to look up names and definitions of long ago.

    Args:
        As `MultiHeadAttention`, without `position`, and:
        top_k: int. Number k of keys that a query finds in the memory.
        join: "gate", with a learned b for each head, or "softmax", one over both.
        qk_norm: as `MultiHeadAttention`.

    Call arguments:
        As `MultiHeadAttention`; a `cache` may also be a dict of `memory` (B, N, M, H + Hv) and
        `memory_mask`, bool (B, M), True at its filled slots, or None.

    Returns:
        As `MultiHeadAttention`; with a memory, in place of the next cache, a dict of `new`, the
        keys and values (B, N, T, H + Hv) of the segment. Scores are those of the segment alone.

    Raises:
        ValueError: if `top_k` < 1, or `join` is unknown; with `join="softmax"`, in a call, if the
            score is a kernel, which has no sum of weights.

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> layer = keras_attn.layers.KNNAttention(2, 4, top_k=3, pattern="causal")
        >>> cache = {"memory": ops.ones((1, 2, 9, 8)), "memory_mask": ops.ones((1, 9), "bool")}
        >>> output, cache = layer(ops.ones((1, 5, 16)), ops.ones((1, 5, 16)), cache=cache)
        >>> cache["new"].shape
        TensorShape([1, 2, 5, 8])

    Differs from the paper: the search is exact; an RMSNorm normalises queries and keys; a query
        without a memory takes its segment alone.

    Reference: [Wu et al., 2022](https://arxiv.org/abs/2203.08913), sections 3.1 and 3.2.
    """

    retrieves = True
    decided_arguments = ("position", "shares_query")
    gate = None
    weight_axes = {**MultiHeadAttention.weight_axes, "gate": ("model",)}

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        *,
        top_k=32,
        join="gate",
        qk_norm="rms_norm",
        **kwargs,
    ):
        check_that(kwargs.get("position") is None, "None", position=kwargs.get("position"))
        super().__init__(num_heads, key_dim, value_dim, qk_norm=qk_norm, **kwargs)
        check_sizes(top_k=top_k)
        check_choice(("gate", "softmax"), join=join)
        self.top_k = top_k
        self.join = join

    def build(self, query_shape=None, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        if self.join == "gate":
            self.gate = self.add_weight((self.num_heads,), "zeros", name="gate")

    def check_inputs(self, query, value, key, cache):
        if _is_memory(cache):
            width = self.key_dim + self.value_dim
            heads = self.num_key_value_heads
            check_shape(cache["memory"], "memory", (query.shape[0], heads, None, width))
            cache = None
        super().check_inputs(query, value, key, cache)

    def query_scale(self):
        return None  # the memory has logits of its own

    def _prepare(self, query, value, key, pattern, masks, positions, cache, training):
        memory = cache if _is_memory(cache) else None
        cache = None if memory is not None else cache
        inputs, view, cache = super()._prepare(
            query, value, key, pattern, masks, positions, cache, training
        )
        if memory is None:
            return inputs, view, cache
        rows = ops.concatenate([inputs.key, inputs.value], axis=-1)
        repeats = self.num_heads // self.num_key_value_heads
        rows = rows if repeats == 1 else rows[:, ::repeats]  # each shared head once
        return inputs.replace(memory=memory), view, {"new": rows}

    def _attend(self, plan, inputs, pattern):
        if inputs.memory is None:
            return super()._attend(plan, inputs, pattern)
        found, log_weight = self._look_up(inputs)
        if self.join == "gate":
            output, scores = super()._attend(plan, inputs, pattern)
            gate = ops.sigmoid(at_least_float32(self.gate))[:, None, None]
            gate = ops.where(log_weight > FORBIDDEN, gate, 0.0)  # 0 where the memory is empty
            gate = ops.cast(gate, output.dtype)
            return (1 - gate) * output + gate * found, scores
        check_that(plan != "linear", "a score with a sum of weights", score=self.score)
        if plan == "blockwise":
            (output, own), scores = pattern.attend_blockwise(inputs, log_weight=True), None
        else:  # the fused kernel gives no sum of weights
            output, own, scores = attend_logits_with_weights(*dense_arguments(inputs, pattern))
            scores = ops.where(own > FORBIDDEN, scores, 0.0)
        output, log_weight = merge_by_logsumexp([(output, own), (found, log_weight)])
        if inputs.sinks is None:
            return output, scores
        if scores is not None:
            scores = scores * share_of_keys(own, inputs.sinks)
        return output * ops.cast(share_of_keys(log_weight, inputs.sinks), output.dtype), scores

    def _look_up(self, inputs):
        """Return attention to the best keys of the memory, and its log weight (B, N, T, 1)."""
        memory, mask = inputs.memory["memory"], inputs.memory["memory_mask"]
        mask = ops.ones((1, size(memory, 2)), "bool") if mask is None else mask
        # `top_k` needs at least k slots.
        num_slots = memory.shape[2]
        missing = self.top_k if num_slots is None else max(self.top_k - num_slots, 0)
        memory, mask = pad(memory, missing, 0), pad(mask, missing, 0, axis=1)
        # Zero the empty slots: NaN times 0 is NaN.
        memory = ops.where(mask[:, None, :, None], ops.stop_gradient(memory), 0)
        memory = ops.cast(memory, inputs.value.dtype)
        if memory.shape[1] < self.num_heads:
            memory = ops.repeat(memory, self.num_heads // memory.shape[1], axis=1)
        key = slice_axis(memory, 0, self.key_dim, axis=3)
        value = slice_axis(memory, self.key_dim, self.value_dim, axis=3)
        logits = at_least_float32(query_keys(inputs.query, key)) / self.key_dim**0.5
        logits = ops.where(mask[:, None, None], logits, FORBIDDEN)  # (B, N, T, M)
        best, slots = ops.top_k(logits, self.top_k)  # (B, N, T, k)
        weights, log_weight = softmax_with_logsumexp(best)
        batch, heads, length, _ = sizes(logits)
        slots = ops.reshape(ops.cast(slots, "int32"), (batch, heads, length * self.top_k))
        values = take_rows(value, row_starts(value) + slots)
        values = ops.reshape(values, (batch, heads, length, self.top_k, self.value_dim))
        output = ops.einsum("bntk,bntkh->bnth", ops.cast(weights, values.dtype), values)
        is_found = ops.any(mask, axis=1)[:, None, None, None]
        log_weight = ops.where(is_found, log_weight, FORBIDDEN)
        return output * ops.cast(is_found, output.dtype), log_weight


def _is_memory(cache):
    return cache is not None and "memory" in cache
