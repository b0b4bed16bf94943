"""A block that is told where its inputs stand."""

import keras
from keras import ops

from keras_attn import positions, registry
from keras_attn.attention.inputs import PositionRange, positions_tensor
from keras_attn.attention.masks import keras_mask
from keras_attn.attention.positions import block_positions
from keras_attn.ops.shapes import size


@registry.register
class PositionedBlock(keras.layers.Layer):
    """A block that adds positions of its own to what it reads.

        y = block(x + P)

    The layers of a stack of such blocks each have positions of their own, so nothing else should
    add any to `x`. Positions count as the block's attention does: with a cache from the end of what
    it holds, and with a memory from the memory's first slot. Cost: that of the two parts.

    Args:
        block: a `TransformerBlock`, or what is called like one.
        position: name or object of the position axis.

    Call arguments:
        As `TransformerBlock`. With a memory, `key_positions` are those of its slots and of `x`.

    Returns:
        As `TransformerBlock`.

    Raises:
        ValueError: if `block` is no layer, or `position` is unknown.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> layer = keras_attn.layers.PositionedBlock(block, keras_attn.positions.Learned(64))
        >>> layer(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none.

    Reference: [Al-Rfou et al., 2018](https://arxiv.org/abs/1808.04444), "Positional Embeddings".
    """

    def __init__(self, block, position, **kwargs):
        super().__init__(**kwargs)
        self.block = registry.deserialize(block) if isinstance(block, dict) else block
        if not isinstance(self.block, keras.layers.Layer):
            raise ValueError(f"`block` must be a layer. Received: block={block!r}.")
        self.position = positions.get(position, dtype=self.dtype_policy)
        self.supports_masking = True

    @property
    def attention(self):
        """The block's, whose keys and values a cache keeps."""
        return self.block.attention

    @property
    def cross_attention(self):
        return self.block.cross_attention

    @property
    def residual(self):
        return self.block.residual

    @property
    def needs_closing_norm(self):
        """Whether a stack of such blocks ends unnormalised."""
        return getattr(self.block, "needs_closing_norm", False)

    def build(self, x_shape, context_shape=None):
        registry.build_once(self.position, x_shape)
        shapes = (x_shape,) if context_shape is None else (x_shape, context_shape)
        registry.build_once(self.block, *shapes)

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
        if padding_mask is None and cache is None:
            padding_mask = keras_mask(x)
        places, arguments = block_positions(x, query_positions, cache), {}
        if memory is not None:
            slots, length = size(memory, 1), size(x, 1)
            if places is None:
                places = PositionRange(slots, length).tensor()
            of_memory = PositionRange(0, slots).tensor()
            if key_positions is not None:
                of_memory = ops.take(positions_tensor(key_positions), of_memory, axis=-1)
            memory = self.position(memory, of_memory)
            arguments = {"memory": memory, "memory_mask": memory_mask}
        return self.block(
            self.position(x, places),
            *(() if context is None else (context,)),
            padding_mask=padding_mask,
            context_padding_mask=context_padding_mask,
            attention_mask=attention_mask,
            query_positions=query_positions,
            key_positions=key_positions,
            cache=cache,
            context_attention_mask=context_attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            **arguments,
        )

    def compute_output_spec(self, x, context=None, **kwargs):
        if kwargs.get("cache") is not None or kwargs.get("return_attention_scores"):
            return super().compute_output_spec(x, context, **kwargs)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "block": registry.serialize(self.block),
            "position": registry.serialize(self.position),
        }
