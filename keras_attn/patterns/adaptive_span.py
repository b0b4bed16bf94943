"""Heads with a learned attention span."""

import functools
import math
import numbers

import keras
from keras import ops

from keras_attn.attention.inputs import TileSizes, positions_by_head
from keras_attn.attention.plans import BlockLocal, Chunked, Plan, attend_by_reach, window_reaches
from keras_attn.ops.checks import check_numbers, check_sizes
from keras_attn.ops.shapes import ceil_div, size, sizes, slice_axis
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import LayerValue, register

# Bounds the logarithm where a key is forbidden anyway.
TINY = 1e-30


@register
class AdaptiveSpan(LayerValue, Pattern):
    """Each head attends to the keys of a span before the query, whose length it learns.

        weight(i, j) = m(x) exp(logit(i, j)) / sum of the same
        m(x) = clip((R + z - x) / R, 0, 1)

    where x = i - j counts the keys nearer than j, z in [0, max_span] is the head's span and R the
    ramp on which keys fade out: z + R keys have a weight, at most `max_span`. z learns from the
    ramp, so a span of zero can still grow. Every span costs `span_loss` a token, which is added to
    the model's loss. With `dynamic`, each query has a span z_t = max_span sigmoid(w . x_t + b) of
    its own, where x_t is the layer's input.

    Keys are cut to the longest span z of all heads. Time O(T (z + R)) and memory O(T) per head, up
    to a factor of two that keeps the shapes fixed; time O(T S) where spans reach half of the keys.
    A dynamic span looks at all queries for this, so the last bit of a result may depend on later
    positions, as on any change of shape. m, its logarithm and the spans are float32 under any dtype
    policy. Optimizers that decay weights should not decay these:
    `optimizer.exclude_from_weight_decay(var_names=["span"])`.

    Use it for long text in which a few heads need a far context and the others do not.

    Args:
        max_span: int. The most keys that a query attends to.
        ramp: int. Length R of the ramp.
        initial_span: float in [0, 1]. The initial span as a part of `max_span`; a dynamic one
            begins between one token and `max_span` less one.
        span_loss: float. Loss per token of the mean span of heads (and of positions that are not
            padding).
        dynamic: bool. If True, each query has a span of its own.
        include_self: bool. If False, a query does not attend to the key at its own position: x is
            i - j - 1, as in the authors' code, and the first query of all attends to no key.

    Raises:
        ValueError: if a size is below 1, `initial_span` is outside [0, 1], `span_loss` is
            negative, or a dynamic span gets no queries.

    Example:
        >>> import keras_attn
        >>> from keras_attn.patterns import AdaptiveSpan
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, pattern=AdaptiveSpan(1024))
        >>> layer.build((None, None, 16))
        >>> layer.pattern.span_summary()["max"]
        0.0

    Differs from the paper: the query attends to its own position too, unless `include_self=False`;
        the nearest key has x = 0, as in the authors' code, where the paper's formula has 1.

    Reference: [Sukhbaatar et al., 2019](https://arxiv.org/abs/1905.07799), section 2.
    """

    causal = True
    is_of_positions = False
    weight_axes = {"span": ("model",), "span_kernel": (None, "model"), "span_bias": ("model",)}

    def __init__(
        self,
        max_span,
        ramp=32,
        initial_span=0.0,
        span_loss=2e-6,
        dynamic=False,
        include_self=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(max_span=max_span, ramp=ramp)
        if not isinstance(initial_span, numbers.Real) or not 0 <= initial_span <= 1:
            raise ValueError(
                "`initial_span` is a part of `max_span`, in [0, 1]. "
                f"Received: initial_span={initial_span!r}."
            )
        check_numbers(0, span_loss=span_loss)
        self.max_span = int(max_span)
        self.ramp = int(ramp)
        self.initial_span = initial_span
        self.span_loss = span_loss
        self.dynamic = bool(dynamic)
        self.include_self = bool(include_self)

    def build(self, query_shape, inputs_shape=None):
        """Create the spans of queries (B, N, T, H), if dynamic made from inputs (B, T, D)."""
        num_heads = query_shape[1]
        dtype = "float64" if self.compute_dtype == "float64" else "float32"
        in_float32 = {"dtype": dtype, "autocast": False}
        if not self.dynamic:
            self.span = self.add_weight(
                (num_heads,),
                keras.initializers.Constant(self.initial_span),
                regularizer=self._loss_of_parts,
                constraint=lambda part: ops.clip(part, 0.0, 1.0),
                name="span",
                **in_float32,
            )
            return
        _check_inputs(inputs_shape)
        token = 1 / (self.max_span + 1)
        part = min(max(self.initial_span, token), 1 - token)
        bias = keras.initializers.Constant(math.log(part / (1 - part)))
        self.kernel = self.add_weight(
            (inputs_shape[-1], num_heads), "glorot_uniform", name="span_kernel", **in_float32
        )
        self.bias = self.add_weight((num_heads,), bias, name="span_bias", **in_float32)

    def mask_mod(self, i, j):
        nearer = self.count_nearer(i, j)
        return ops.logical_and(nearer >= 0, nearer < self.max_span)

    def for_call(self, inputs, layer_input, position):
        if not self.dynamic:
            return _SpansOfCall(self, self._static_spans())
        spans = self._dynamic_spans(layer_input)
        self.add_loss(self.span_loss * _mean(spans, inputs.real_keys()))
        return _SpansOfCall(self, spans)

    def dense_mask_and_bias(self, inputs):
        return self.for_call(inputs, None, None).dense_mask_and_bias(inputs)

    @functools.cached_property
    def plan(self):
        return SpanWindows(self, None)

    @property
    def kept_keys(self):
        return KeptKeys(self.max_span if self.include_self else self.max_span + 1)

    def span_summary(self, inputs=None):
        """Return how far the heads look, in tokens.

        Args:
            inputs: (B, T, D), the layer's input: for a dynamic span.

        Returns:
            A dict of `spans`, a NumPy array with the span z of each head (dynamic: the mean over
            all queries); floats `mean` and `max`, over all of them; of a dynamic span `queries`,
            the span of each, (B, N, T); and ints `ramp` and `max_span`.

        Raises:
            ValueError: if the layer that holds the pattern was not called before.
        """
        if not self.built:
            raise ValueError(
                f"`span_summary` needs a pattern whose layer has been called. Received: {self!r}."
            )
        spans = self._dynamic_spans(inputs) if self.dynamic else self._static_spans()
        spans = ops.convert_to_numpy(spans)
        summary = {"mean": float(spans.mean()), "max": float(spans.max())}
        if self.dynamic:
            summary["queries"] = spans[..., 0]
        sizes_of_mask = {"ramp": self.ramp, "max_span": self.max_span}
        return {"spans": spans.mean(axis=(0, 2, 3)), **summary, **sizes_of_mask}

    def _static_spans(self):
        return self.max_span * ops.expand_dims(ops.convert_to_tensor(self.span), (0, 2, 3))

    def _dynamic_spans(self, inputs):
        _check_inputs(inputs)
        inputs = ops.cast(inputs, self.kernel.dtype)
        logits = ops.matmul(inputs, self.kernel) + self.bias  # (B, T, N)
        return self.max_span * ops.expand_dims(ops.swapaxes(ops.sigmoid(logits), 1, 2), -1)

    def _loss_of_parts(self, parts):
        return self.span_loss * self.max_span * ops.mean(parts)

    def count_nearer(self, i, j):
        """Return x, the number of keys that are nearer to a query at i than the key at j."""
        return i - j if self.include_self else i - j - 1


class _SpansOfCall(Pattern):
    """The spans z of one call: (1, N, 1, 1), or (B, N, T, 1) if each query has its own."""

    causal = True
    is_of_positions = False

    def __init__(self, pattern, spans):
        self.pattern, self.spans = pattern, spans

    @property
    def kept_keys(self):
        return self.pattern.kept_keys

    def mask_mod(self, i, j):
        return self.pattern.mask_mod(i, j)

    def dense_mask_and_bias(self, inputs):
        i = ops.expand_dims(positions_by_head(inputs.query_positions), -1)
        j = ops.expand_dims(positions_by_head(inputs.key_positions), -2)
        return self.plan.is_in_span(i, j, self.spans), self.plan.log_soft_mask(i, j, self.spans)

    @functools.cached_property
    def plan(self):
        return SpanWindows(self.pattern, self.spans)


class SpanWindows(Plan):
    """The keys of the longest span of all heads, weighed by the ramp.

    Args:
        pattern: the `AdaptiveSpan`.
        spans: of a call, (1, N, 1, 1) or (B, N, T, 1); None for the costs alone.
    """

    def __init__(self, pattern, spans):
        super().__init__(pattern.mask_mod)
        self.pattern, self.spans = pattern, spans

    def attend_row(self, inputs, log_weight=False):
        pattern, spans = self.pattern, self.spans
        spans_of_queries = (*sizes(spans)[:2], size(inputs.query, 2), 1)
        soft = {
            "bias": self.log_soft_mask,
            "extras": (ops.broadcast_to(spans, spans_of_queries),),
        }

        def window(reach):
            blocks = self._blocks(reach, inputs.tile_sizes)
            return BlockLocal(self.is_in_span, *blocks, **soft).attend_row(inputs, log_weight)

        def whole():
            return Chunked(self.is_in_span, **soft).attend_row(inputs, log_weight)

        longest = ops.cast(ops.ceil(ops.max(ops.stop_gradient(spans))), "int32") + pattern.ramp
        return attend_by_reach(
            inputs,
            window,
            whole,
            ops.minimum(longest, pattern.max_span),
            most=pattern.max_span,
            least=pattern.ramp,
        )

    attend_documents = attend_row

    def is_in_span(self, i, j, spans):
        """Return True where a key has a weight by spans (B or 1, N, T or 1, 1)."""
        nearer = self.pattern.count_nearer(i, j)
        reach = ops.minimum(spans + self.pattern.ramp, self.pattern.max_span)
        return ops.logical_and(nearer >= 0, ops.cast(nearer, reach.dtype) < reach)

    def log_soft_mask(self, i, j, spans):
        """Return log m(x), of at least float32."""
        nearer, ramp = ops.cast(self.pattern.count_nearer(i, j), spans.dtype), self.pattern.ramp
        return ops.log(ops.clip((spans + ramp - nearer) / ramp, TINY, 1.0))

    def tiles(self, inputs):
        # Spans at their initial length: no value is read.
        pattern, num_keys = self.pattern, inputs.key.shape[2]
        longest = math.ceil(pattern.initial_span * pattern.max_span) + pattern.ramp
        longest = min(longest, pattern.max_span)
        if 2 * longest > num_keys:
            return Chunked(None).tiles(inputs)
        reaches = window_reaches(num_keys, pattern.max_span, inputs.tile_sizes, pattern.ramp)
        reach = next(reach for reach in reaches if reach >= longest)
        return BlockLocal(None, *self._blocks(reach, inputs.tile_sizes)).tiles(inputs)

    def extra_products(self, inputs):
        if not self.pattern.dynamic:
            return 0, 0
        batch, _, length, _ = inputs.query.shape
        products = batch * length * math.prod(self.pattern.kernel.shape)
        return products, 2 * products

    def keys_per_query(self, num_keys):
        # The shortest window: longer spans cost more as they grow.
        reach = window_reaches(None, self.pattern.max_span, TileSizes, self.pattern.ramp)[0]
        block, before = self._blocks(reach, TileSizes)
        return min(num_keys, (1 + before) * block)

    def _blocks(self, reach, tile_sizes):
        """Return the length of blocks, and how many before its own a query of this reach needs."""
        block = min(reach, tile_sizes.most_block)
        return block, ceil_div(reach - self.pattern.include_self, block)


def _check_inputs(inputs):
    if inputs is None:
        raise ValueError(
            "`dynamic=True` makes spans from what the layer makes queries of: there is no dynamic "
            "span without queries. Received: inputs=None."
        )


def _mean(spans, real):
    """Return the mean of spans (B, N, T, 1) over heads and real queries: the last T positions."""
    length, num_keys = spans.shape[2], None if real is None else real.shape[2]
    if real is None or None not in (length, num_keys) and length > num_keys:
        return ops.mean(spans)
    length = size(spans, 2)
    real = slice_axis(ops.cast(real, spans.dtype), size(real, 2) - length, length, axis=2)
    weights = ops.broadcast_to(ops.expand_dims(real, -1), sizes(spans))
    return ops.sum(spans * weights) / ops.maximum(ops.sum(weights), 1.0)
