"""Attention whose first queries have projections of their own."""

from keras_attn.attention.inputs import PositionRange, ResolvedPositions, first_positions
from keras_attn.attention.plans import replace_first_queries
from keras_attn.layers.multi_head_attention import MultiHeadAttention
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.shapes import greater, lesser, size, slice_axis
from keras_attn.registry import register

GLOBAL = ("global_query", "global_key", "global_value")


@register
class GlobalAttention(MultiHeadAttention):
    """Attention whose queries at the first positions have projections of their own.

        head(i) = softmax(score(x_i W_q', Y W_k') over allowed keys) Y W_v'    i < num_global
        head(i) = softmax(score(x_i W_q,  Y W_k)  over allowed keys) Y W_v     otherwise

    With `pattern=Local(w, causal=False) | Global(num_global)` it is Longformer's attention, whose
    global tokens attend to all keys by W'; other queries find their keys, the global ones among
    them, by W. The pattern decides alone which keys a query may attend to. Positions count in each
    document of packed rows. With `num_global=0` the outputs are those of `MultiHeadAttention`.

    Cost: that of `MultiHeadAttention`, three quarters more weights, and for the first queries time
    O(S N H (D + num_global)) and memory O(S N (H + num_global)). If the caller gives positions or
    packed rows, all T queries are computed by both projections.

    Use it for long texts with a token for the class, or a question, which reads all of the text.

    Args:
        As `MultiHeadAttention`, without `qk_norm` and `qk_norm_axis`, and:
        num_global: int. Number of first positions whose queries have projections of their own.

    Call arguments:
        As `MultiHeadAttention`, without `cache`.

    Returns:
        As `MultiHeadAttention`.

    Raises:
        ValueError: if `num_global` is below 0, the pattern is not a function of positions alone,
            the score shares queries and keys; in a call, if there is a cache.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.patterns import Global, Local
        >>> layer = keras_attn.layers.GlobalAttention(
        ...     2, 8, num_global=1, pattern=Local(3, causal=False) | Global(1)
        ... )
        >>> layer(keras.ops.ones((3, 5, 16)), keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: global positions are the first of the sequence; the second projections
        do not start as copies of the others.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.1.
    """

    decided_arguments = ("shares_query", "qk_norm", "qk_norm_axis")
    weight_axes = {
        **MultiHeadAttention.weight_axes,
        "global_query_kernel": (None, "model"),
        "global_query_bias": ("model",),
        "global_key_kernel": (None, "model"),
        "global_key_bias": ("model",),
        "global_value_kernel": (None, "model"),
        "global_value_bias": ("model",),
    }

    def __init__(self, num_heads, key_dim, value_dim=None, *, num_global=1, **kwargs):
        check_that(kwargs.get("qk_norm") is None, "None", qk_norm=kwargs.get("qk_norm"))
        check_sizes(least=0, num_global=num_global)
        super().__init__(num_heads, key_dim, value_dim, **kwargs)
        check_that(not self.shares_query, "one with kernels of keys", score=self.score)
        check_that(
            self.pattern.is_of_positions, "a function of positions alone", pattern=self.pattern
        )
        self.num_global = num_global

    def build(self, query_shape=None, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        for name in GLOBAL:
            inputs, outputs = self.kernel_axes(name.removeprefix("global_"))
            self._add_projection(name, inputs, outputs)

    def check_inputs(self, query, value, key, cache):
        if cache is not None:
            raise ValueError(
                "`cache` must be None: it would keep no keys of the second projections of a "
                f"`GlobalAttention`. Received: a cache with {sorted(cache)}."
            )
        super().check_inputs(query, value, key, cache)

    def query_scale(self):
        return None  # the second projections have the queries' own scale

    def prepare(self, call):
        """Prepare a call; `own` holds queries, keys and values by the second projections."""
        prepared = super().prepare(call)
        if not self.num_global:
            return prepared
        return prepared.replace(own=self._project_first(call, prepared.inputs))

    def _project_first(self, call, inputs):
        """Return queries that may be first ones, keys and values by the second projections."""
        query, value, key = call.query, call.value, call.key
        if _are_ordered(inputs):
            ahead = 0 if query is value else size(query, 1) - size(value, 1)
            count = lesser(size(query, 1), self.num_global + greater(ahead, 0))
            query = slice_axis(query, 0, count, axis=1)
        (first,) = self.project(query, "global_query")
        if key is None or key is value:
            key, value = self.project(value, "global_key", "global_value")
        else:
            (key,), (value,) = self.project(key, "global_key"), self.project(value, "global_value")
        if self.position is not None:
            positions = _inputs_of_first(inputs, size(first, 2)).query_positions
            resolved = ResolvedPositions(positions, inputs.key_positions, None)
            first, key = self.apply_position(first, key, resolved)
        if self.num_key_value_heads < self.num_heads:
            key, value = self.repeat_heads(key, value)
        return first, key, value

    def attend(self, prepared):
        output, scores = super().attend(prepared)
        if prepared.own is None:
            return output, scores
        query, key, value = prepared.own
        inputs = prepared.inputs
        first = _inputs_of_first(inputs.fold_in(11), size(query, 2))
        first = prepared.replace(inputs=first.replace(query=query, key=key, value=value))
        if _are_ordered(inputs):  # few rows are a small matrix, however the others are computed
            first = first.replace(implementation="dense")
        first_output, first_scores = super().attend(first)
        positions, count = first.inputs.query_positions, self.num_global
        output = replace_first_queries(output, first_output, positions, count)
        if scores is not None:
            scores = replace_first_queries(scores, first_scores, positions, count)
        return output, scores


def _are_ordered(inputs):
    """Return True if only the first rows may be at the first positions."""
    return isinstance(inputs.query_positions, PositionRange)


def _inputs_of_first(inputs, count):
    """Return the inputs with positions and masks of the first `count` queries, or of all."""
    if not _are_ordered(inputs):
        return inputs
    mask = inputs.attention_mask
    if mask is not None and mask.shape[2] != 1:
        mask = slice_axis(mask, 0, count, axis=2)
    positions = first_positions(inputs.query_positions, count)
    return inputs.replace(query_positions=positions, attention_mask=mask)
