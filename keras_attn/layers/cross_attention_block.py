"""A block whose queries attend to a context only."""

from keras_attn import registry, residuals
from keras_attn.attention.inputs import keras_mask
from keras_attn.layers.block import check_cross_attention, missing_arguments
from keras_attn.ops.checks import check_rates, check_that
from keras_attn.ops.dropout import Dropout


@registry.register
class CrossAttentionBlock(registry.MaskedLayer):
    """Attention of queries to a context of another length, then a feed-forward network.

        x = R_1(query, Attention(query, norm(context))),   x = R_2(x, FFN(x))

    where R(x, f) = after(x, dropout(f(before(x)))) is the residual. Reading a long input by a few
    queries, or writing a long output from a few vectors, takes O(T S) for T queries and S keys.

    Args:
        attention: an attention layer, called with `(query, context)`.
        feed_forward: a layer, called with `(x)`.
        residual: name or object of the residual axis, whose norm the context has too.
        adds_query: bool. If False, the first x is the attention's output, without R_1's sum.
        normalizes_context: bool. If False, the context is read as it is.
        dropout: float. Dropout rate of each sublayer's output.

    Call arguments:
        query: (B, T, D).
        context: (B, S, C).
        context_mask: bool (B, S), True where the context is real; by default Keras's mask of it.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if the attention's score has distances, or `dropout` is outside [0, 1).

    Example:
        >>> import keras
        >>> from keras_attn.layers import CrossAttentionBlock, FeedForward, MultiHeadAttention
        >>> block = CrossAttentionBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> block(keras.ops.ones((3, 2, 16)), keras.ops.ones((3, 50, 12))).shape
        TensorShape([3, 2, 16])

    Differs from the paper: none.

    Reference: [Jaegle et al., 2021](https://arxiv.org/abs/2103.03206), section 3.1 and appendix C;
        without the query: [Jaegle et al., 2022](https://arxiv.org/abs/2107.14795), appendix E.
    """

    depends_on_config_only = True

    def __init__(
        self,
        attention,
        feed_forward,
        *,
        residual="pre_norm",
        adds_query=True,
        normalizes_context=True,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.attention = registry.revive(attention)
        self.feed_forward = registry.revive(feed_forward)
        wanted = "an attention layer; the order is `CrossAttentionBlock(attention, feed_forward)`"
        is_attention = not missing_arguments(self.attention, {"value_mask"})
        check_that(is_attention, wanted, attention=self.attention)
        check_cross_attention("attention", self.attention)
        check_rates(dropout=dropout)
        residual = residuals.get(residual, dtype=self.dtype_policy)
        self.attention_residual = registry.copy(residual)
        self.feed_forward_residual = registry.copy(residual)
        self.context_norm = registry.copy(residual.norm) if normalizes_context else None
        self.adds_query = bool(adds_query)
        self.normalizes_context = bool(normalizes_context)
        self.dropout = dropout
        self.drop = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, query_shape, context_shape):
        if self.context_norm is not None:
            registry.build_once(self.context_norm, context_shape)
        registry.build_once(self.attention, query_shape, context_shape)
        registry.build_once(self.attention_residual, query_shape, query_shape)
        registry.build_once(self.feed_forward, query_shape)
        registry.build_once(self.feed_forward_residual, query_shape, query_shape)

    def call(self, query, context, context_mask=None, training=None):
        context_mask = keras_mask(context) if context_mask is None else context_mask
        if self.context_norm is not None:
            context = self.context_norm(context)
        y = self.attention(
            self.attention_residual.before(query),
            context,
            value_mask=context_mask,
            training=training,
        )
        y = self.drop(y, training=training)
        x = self.attention_residual.after(query, y) if self.adds_query else y
        y = self.feed_forward(self.feed_forward_residual.before(x), training=training)
        return self.feed_forward_residual.after(x, self.drop(y, training=training))

    def compute_output_shape(self, query_shape, context_shape=None):
        return query_shape

    def get_config(self):
        residual = registry.serialize(registry.copy(self.feed_forward_residual))
        return {**super().get_config(), "residual": residual}
