"""One block: attention, optionally cross-attention, feed-forward, each in a residual."""

import keras
from keras import ops

from keras_attn import registry, residuals
from keras_attn.attention.masks import join_masks, keras_mask
from keras_attn.ops.checks import check_rates, check_shape


@registry.register
class TransformerBlock(keras.layers.Layer):
    """Attention, then optionally attention to a context, then a feed-forward network.

        x = R_1(x, Attention(x)),   x = R_2(x, CrossAttention(x, context)),   x = R_3(x, FFN(x))

    where R(x, f) = after(x, dropout(f(before(x)))) is the residual. Each sublayer gets a copy of
    the residual of its own. Cost: the sum of its parts.

    Args:
        attention: an attention layer, called with `(x, x)`.
        feed_forward: a layer, called with `(x)`.
        cross_attention: an attention layer, called with `(x, context)`; None for an encoder.
        residual: name or object of the residual axis.
        dropout: float. Dropout rate of each sublayer's output.

    Call arguments:
        x: (B, T, D). context: (B, S, D), for cross-attention.
        padding_mask: bool (B, T) of `x`; context_padding_mask: bool (B, S) of `context`; by
            default Keras's masks of the two.
        attention_mask, query_positions, key_positions: passed to the self-attention.
        context_attention_mask: passed to the cross-attention, broadcastable to (B, N, T, S).
        memory: (B, M, D), what stood before `x` at the same place: more keys for the
            self-attention, which the residual prepares as it does `x`. Masks and positions of keys
            are then those of M + T.
        memory_mask: bool (B, M), True where a slot of the memory is filled; by default everywhere.
        cache: dict with the caches of `attention`, for cross-attention `cross_attention`, and of a
            `feed_forward` that looks at other positions.
        return_attention_scores: bool.

    Returns:
        (B, T, D); then, if asked for, a dict of each attention's scores; then, with `cache`, the
        new cache.

    Raises:
        ValueError: if a context is given without cross-attention, or the other way round, a memory
            with a cache, a sublayer is not a layer, or `dropout` is outside [0, 1).

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> block = keras_attn.layers.TransformerBlock(
        ...     keras_attn.layers.MultiHeadAttention(2, 8), keras_attn.layers.FeedForward(32))
        >>> block(ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none with the default residual.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1, figure 1.
    """

    def __init__(
        self,
        attention,
        feed_forward,
        *,
        cross_attention=None,
        residual="post_norm",
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        deserialize = keras.saving.deserialize_keras_object
        self.attention, self.feed_forward, self.cross_attention = (
            deserialize(layer) if isinstance(layer, dict) else layer
            for layer in (attention, feed_forward, cross_attention)
        )
        for name in ("attention", "feed_forward", "cross_attention"):
            layer = getattr(self, name)
            is_optional = name == "cross_attention" and layer is None
            if not (is_optional or isinstance(layer, keras.layers.Layer)):
                raise ValueError(f"`{name}` must be a layer. Received: {name}={layer!r}.")
        check_rates(dropout=dropout)
        residual = residuals.get(residual, dtype=self.dtype_policy)
        self.attention_residual = registry.copy(residual)
        if cross_attention is not None:
            self.cross_attention_residual = registry.copy(residual)
        self.feed_forward_residual = registry.copy(residual)
        self.dropout = dropout
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.supports_masking = True

    @property
    def residual(self):
        """What the residuals of all sublayers are copies of, seen by the attention's."""
        return self.attention_residual

    @property
    def needs_closing_norm(self):
        """Whether a stack of such blocks ends unnormalised."""
        return self.residual.needs_closing_norm

    def build(self, x_shape, context_shape=None):
        self._check_context(context_shape)
        registry.build_once(self.attention, x_shape, x_shape)
        registry.build_once(self.attention_residual, x_shape, x_shape)
        if self.cross_attention is not None:
            registry.build_once(self.cross_attention, x_shape, context_shape)
            registry.build_once(self.cross_attention_residual, x_shape, x_shape)
        registry.build_once(self.feed_forward, x_shape)
        registry.build_once(self.feed_forward_residual, x_shape, x_shape)

    def _check_context(self, shape):
        if (shape is None) != (self.cross_attention is None):
            raise ValueError(
                "`context` is needed with `cross_attention`, and only then. Received: "
                f"context of shape {shape}, cross_attention={self.cross_attention}."
            )

    def _check_memory(self, memory, x, cache):
        if memory is None:
            return
        if cache is not None:
            raise ValueError(
                "A call takes a `memory` or a `cache`, not both: a cache keeps all keys itself. "
                f"Received: memory of shape {tuple(memory.shape)}, cache with {sorted(cache)}."
            )
        check_shape(memory, "memory", (x.shape[0], None, x.shape[2]))

    def call(
        self,
        x,
        context=None,
        *,
        padding_mask=None,
        context_padding_mask=None,
        attention_mask=None,
        query_positions=None,
        key_positions=None,
        memory=None,
        memory_mask=None,
        cache=None,
        context_attention_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        sublayers, rest = self.sublayers(
            x,
            context,
            padding_mask=padding_mask,
            context_padding_mask=context_padding_mask,
            attention_mask=attention_mask,
            query_positions=query_positions,
            key_positions=key_positions,
            memory=memory,
            memory_mask=memory_mask,
            cache=cache,
            context_attention_mask=context_attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        for residual, sublayer in sublayers:
            x = residual.after(x, sublayer(residual.before(x), context))
        return (x, *rest) if rest else x

    def sublayers(
        self,
        x,
        context=None,
        *,
        padding_mask=None,
        context_padding_mask=None,
        attention_mask=None,
        query_positions=None,
        key_positions=None,
        memory=None,
        memory_mask=None,
        cache=None,
        context_attention_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        """The steps of a call with these arguments: for whoever adds their results up otherwise.

        Returns:
            A list of pairs of a residual and a function, for
            `x = residual.after(x, function(residual.before(x), context))`; and a list of what else
            the block returns, complete once the functions have run.
        """
        if cache is None or context is not None:
            self._check_context(None if context is None else tuple(context.shape))
        self._check_memory(memory, x, cache)
        scores, new_cache = {}, {}

        def attend(name, read, value, **masks):
            results = getattr(self, name)(
                read,
                value,
                cache=None if cache is None else cache[name],
                return_attention_scores=return_attention_scores,
                training=training,
                **masks,
            )
            if cache is not None:
                *results, new_cache[name] = results
            if return_attention_scores:
                results, scores[name] = results[:2]
            output = results[0] if isinstance(results, list) else results
            return self.drop(output, training=training)

        if padding_mask is None and cache is None:
            padding_mask = keras_mask(x)
        if memory is not None:
            padding_mask = join_masks(
                (memory, memory_mask, "memory_mask"), (x, padding_mask, "padding_mask")
            )

        def with_memory(read):
            if memory is None:
                return read
            return ops.concatenate([self.attention_residual.before(memory), read], axis=1)

        def attention(read, context):
            return attend(
                "attention",
                read,
                with_memory(read),
                value_mask=padding_mask,
                attention_mask=attention_mask,
                query_positions=query_positions,
                key_positions=key_positions,
            )

        if self.cross_attention is not None and context_padding_mask is None:
            context_padding_mask = keras_mask(context)

        def cross_attention(read, context):
            return attend(
                "cross_attention",
                read,
                context,
                value_mask=context_padding_mask,
                attention_mask=context_attention_mask,
            )

        arguments = {}
        if getattr(self.feed_forward, "mixes_positions", False):
            self._check_mixing(memory)
            arguments["padding_mask"] = padding_mask
            if cache is not None:
                arguments.update(
                    attention_mask=attention_mask,
                    query_positions=query_positions,
                    key_positions=key_positions,
                    cache=cache["feed_forward"],
                )

        def feed_forward(read, context):
            output = self.feed_forward(read, training=training, **arguments)
            if "cache" in arguments:
                output, new_cache["feed_forward"] = output
            return self.drop(output, training=training)

        steps = [(self.attention_residual, attention)]
        if self.cross_attention is not None:
            steps.append((self.cross_attention_residual, cross_attention))
        steps.append((self.feed_forward_residual, feed_forward))
        rest = [scores] if return_attention_scores else []
        return steps, rest if cache is None else [*rest, new_cache]

    def _check_mixing(self, memory):
        if memory is not None:
            raise ValueError(
                "`memory` does not fit a feed-forward layer that looks at other positions, whose "
                "inputs it does not keep. "
                f"Received: feed_forward of type {type(self.feed_forward).__name__}."
            )

    def compute_output_spec(self, x, context=None, *, cache=None, **kwargs):
        if cache is not None or kwargs.get("return_attention_scores"):
            return super().compute_output_spec(x, context, cache=cache, **kwargs)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "attention": registry.serialize(self.attention),
            "feed_forward": registry.serialize(self.feed_forward),
            "cross_attention": registry.serialize(self.cross_attention),
            "residual": registry.serialize(registry.copy(self.residual)),  # not how it was built
            "dropout": self.dropout,
        }
