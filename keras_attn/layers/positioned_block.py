"""A block with positions of its own."""

from keras import ops

from keras_attn import positions, registry
from keras_attn.attention.inputs import PositionRange, positions_tensor
from keras_attn.attention.positions import block_positions
from keras_attn.layers.block import Block
from keras_attn.ops.shapes import size


def _of_block(name):
    """Return a property that reads the attribute `name` of `self.block`."""

    def read(self):
        return getattr(self.block, name)

    return property(read, doc=f"The `{name}` of the block.")


@registry.register
class PositionedBlock(Block):
    """Add positions to the input of a block.

        y = block(x + P)

    Each block of a stack then has positions of its own, so nothing else should add any to `x`.
    Positions count as in the block's attention: with a cache from the number of keys that it holds,
    with a memory from the memory's first slot. Cost: that of the two parts.

    Args:
        block: a `TransformerBlock`, or another `Block`.
        position: name or object of the position axis.

    Call arguments and returns:
        As `Block`. With a memory, `key_positions` are those of its slots and of `x`.

    Raises:
        ValueError: if `block` is no `Block`, or `position` is unknown.

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

    depends_on_config_only = True
    attention = _of_block("attention")
    cross_attention = _of_block("cross_attention")
    feed_forward = _of_block("feed_forward")
    needs_closing_norm = _of_block("needs_closing_norm")

    @property
    def residual(self):
        """The residual of the block's attention."""
        return self.block.residual

    def __init__(self, block, position, **kwargs):
        super().__init__(**kwargs)
        self.block = registry.revive(block)
        if not isinstance(self.block, Block):
            raise ValueError(f"`block` must be a `Block`. Received: block={block!r}.")
        self.position = positions.get(position, dtype=self.dtype_policy)

    def build(self, x_shape, context_shape=None):
        registry.build_once(self.position, x_shape)
        shapes = (x_shape,) if context_shape is None else (x_shape, context_shape)
        registry.build_once(self.block, *shapes)

    def apply(self, x, call):
        positions = block_positions(x, call.query_positions, call.cache, call.segment_ids)
        if call.memory is not None and not self.retrieves:
            slots = size(call.memory, 1)
            if positions is None:
                positions = PositionRange(slots, size(x, 1)).tensor()
            memory_positions = PositionRange(0, slots).tensor()
            if call.key_positions is not None:
                memory_positions = ops.take(
                    positions_tensor(call.key_positions), memory_positions, axis=-1
                )
            call = call.replace(memory=self.position(call.memory, memory_positions))
        return self.block.apply(self.position(x, positions), call)
