"""Attention to the segment, and to the best keys of a long memory."""

import inspect

from keras import ops

from keras_attn.attention.inputs import AttentionCall
from keras_attn.attention.softmax import (
    FORBIDDEN,
    at_least_float32,
    attend_logits_with_weights,
    dense_arguments,
    merge_by_logsumexp,
    query_keys,
    share_of_keys,
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
        As `MultiHeadAttention`, and:
        memory: (B, N, M, H + Hv), keys and values of earlier segments; by default none.
        memory_mask: bool (B, M), True at the filled slots of the memory; by default all.

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
        >>> x, memory = ops.ones((1, 5, 16)), ops.ones((1, 2, 9, 8))
        >>> output, rows = layer(x, x, memory=memory)
        >>> rows["new"].shape
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

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        segment_ids=None,
        query_positions=None,
        key_positions=None,
        cache=None,
        memory=None,
        memory_mask=None,
    ):
        if cache is not None and "memory" in cache:  # as version 0.2.0 took the two
            cache, memory, memory_mask = None, cache["memory"], cache["memory_mask"]
        self.check_inputs(query, value, key, cache)
        if memory is not None:
            check_that(cache is None, "None beside a `memory`", cache=cache)
            width = self.key_dim + self.value_dim
            heads = self.num_key_value_heads
            check_shape(memory, "memory", (query.shape[0], heads, None, width))
        call = AttentionCall(
            query=query,
            value=value,
            key=key,
            masks={
                "value_mask": value_mask,
                "key_mask": key_mask,
                "attention_mask": attention_mask,
            },
            use_causal_mask=use_causal_mask,
            segment_ids=segment_ids,
            query_positions=query_positions,
            key_positions=key_positions,
            cache=cache,
            training=training,
            own=None if memory is None else (memory, memory_mask),
        )
        return self.run(call, query_mask, return_attention_scores)

    def query_scale(self):
        return None  # the memory has logits of its own

    def prepare(self, call):
        """Prepare a call; `own` holds the memory and its mask, which follow the call."""
        prepared = super().prepare(call)
        if call.own is None:
            return prepared
        inputs = prepared.inputs
        rows = ops.concatenate([inputs.key, inputs.value], axis=-1)
        repeats = self.num_heads // self.num_key_value_heads
        rows = rows if repeats == 1 else rows[:, ::repeats]  # each shared head once
        return prepared.replace(own=call.own, cache={"new": rows})

    def attend(self, prepared):
        if prepared.own is None:
            return super().attend(prepared)
        inputs, pattern = prepared.inputs, prepared.pattern
        retrieved, log_weight = self._look_up(inputs, *prepared.own)
        if self.join == "gate":
            output, scores = super().attend(prepared)
            gate = ops.expand_dims(ops.sigmoid(at_least_float32(self.gate)), (1, 2))
            gate = ops.where(log_weight > FORBIDDEN, gate, 0.0)  # 0 where the memory is empty
            gate = ops.cast(gate, output.dtype)
            return (1 - gate) * output + gate * retrieved, scores
        has_sum = prepared.implementation != "linear"
        check_that(has_sum, "a score with a sum of weights", score=self.score)
        if prepared.implementation == "blockwise":
            (output, own), scores = pattern.plan.attend(inputs, log_weight=True), None
        else:  # the fused kernel gives no sum of weights
            output, own, scores = attend_logits_with_weights(*dense_arguments(inputs, pattern))
            scores = ops.where(own > FORBIDDEN, scores, 0.0)
        output, log_weight = merge_by_logsumexp([(output, own), (retrieved, log_weight)])
        if self.sink_logits is None:
            return output, scores
        if scores is not None:
            scores = scores * share_of_keys(own, self.sink_logits)
        share = share_of_keys(log_weight, self.sink_logits)
        return output * ops.cast(share, output.dtype), scores

    def compute_output_spec(self, *args, **kwargs):
        arguments = inspect.signature(self.call).bind(*args, **kwargs).arguments
        if arguments.get("memory") is None:
            return super().compute_output_spec(*args, **kwargs)
        return super(MultiHeadAttention, self).compute_output_spec(*args, **kwargs)

    def _look_up(self, inputs, memory, mask):
        """Return attention to the best keys of the memory, and its log weight (B, N, T, 1)."""
        mask = ops.ones((1, size(memory, 2)), "bool") if mask is None else mask
        # `top_k` needs at least k slots.
        num_slots = memory.shape[2]
        missing = self.top_k if num_slots is None else max(self.top_k - num_slots, 0)
        memory, mask = pad(memory, missing, 0), pad(mask, missing, 0, axis=1)
        # Zero the empty slots: NaN times 0 is NaN.
        memory = ops.where(ops.expand_dims(mask, (1, 3)), ops.stop_gradient(memory), 0)
        memory = ops.cast(memory, inputs.value.dtype)
        if memory.shape[1] < self.num_heads:
            memory = ops.repeat(memory, self.num_heads // memory.shape[1], axis=1)
        key = slice_axis(memory, 0, self.key_dim, axis=3)
        value = slice_axis(memory, self.key_dim, self.value_dim, axis=3)
        logits = at_least_float32(query_keys(inputs.query, key)) / self.key_dim**0.5
        logits = ops.where(ops.expand_dims(mask, (1, 2)), logits, FORBIDDEN)  # (B, N, T, M)
        best, slots = ops.top_k(logits, self.top_k)  # (B, N, T, k)
        weights, log_weight = softmax_with_logsumexp(best)
        batch, heads, length, _ = sizes(logits)
        slots = ops.reshape(ops.cast(slots, "int32"), (batch, heads, length * self.top_k))
        values = take_rows(value, row_starts(value) + slots)
        values = ops.reshape(values, (batch, heads, length, self.top_k, self.value_dim))
        output = ops.einsum("bntk,bntkh->bnth", ops.cast(weights, values.dtype), values)
        is_filled = ops.expand_dims(ops.any(mask, axis=1), (1, 2, 3))
        log_weight = ops.where(is_filled, log_weight, FORBIDDEN)
        return output * ops.cast(is_filled, output.dtype), log_weight
