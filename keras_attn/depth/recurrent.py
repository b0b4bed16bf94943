"""One block, repeated a fixed number of times."""

import keras

from keras_attn import positions, registry
from keras_attn.attention.positions import block_positions
from keras_attn.depth import caches
from keras_attn.depth.stack import Stack, make_block, refuse_batch_norm
from keras_attn.ops.checks import check_sizes


@registry.register
class Recurrent(Stack):
    """A stack whose layers share their weights: one block, repeated.

        H^t = block(H^{t-1} + P^t),   t = 1 .. T

    It is recurrent in depth, not in time, and parallel along the sequence. `position` is added
    before each step, inside the residual, so nothing else should add positions to `x`. A cache has
    separate keys and values for each step. Cost: that of a `Stack` of T blocks, with the weights of
    one.

    Use it for algorithmic tasks, and models with few weights.

    Args:
        block: a `Block`, or a function that is called with 0 and gives one. A `Stack` is a block,
            too, where neither a cache nor a memory is needed.
        num_steps: int. Number of steps T.
        position: name or object of the position axis, such as `"timestep"`; None for none.
        remat, drop: as `Stack`, of the steps in the place of the blocks.

    Call arguments and returns:
        As `Stack`, each step in the place of a layer.

    Raises:
        ValueError: if `num_steps` < 1, `block` gives no layer, or `position` is unknown.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> encoder = keras_attn.depth.Recurrent(block, num_steps=6, position="timestep")
        >>> encoder(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none with `position="timestep"` and post-norm blocks. Tensor2Tensor's
        blocks are pre-norm, and its steps have learned vectors.

    Reference: [Dehghani et al., 2019](https://arxiv.org/abs/1807.03819), section 2.1, eq. 4 to 7.
    """

    decided_arguments = ("num_layers",)

    runs_rows = False  # positions and steps are added to (B, T, D)
    shares_block = True

    def __init__(self, block, num_steps, position=None, remat=False, drop=0.0, **kwargs):
        check_sizes(num_steps=num_steps)
        block = registry.revive(block)
        is_function = callable(block) and not isinstance(block, keras.layers.Layer)
        block = make_block(block, 0) if is_function else block
        super().__init__([block] * num_steps, remat=remat, drop=drop, **kwargs)
        refuse_batch_norm(self, block)
        self.block = block
        self.num_steps = num_steps
        if position is not None:
            position = positions.get(position, dtype=self.dtype_policy)
        self.position = position

    def build(self, x_shape, context_shape=None):
        super().build(x_shape, context_shape)
        if self.position is not None:
            registry.build_once(self.position, x_shape)

    def context_cache(self, context):
        """Return complete cross-attention caches of `context` (B, S, D), the same for all steps."""
        return caches.of_context([self.block], context) * self.num_steps

    def _block_input(self, number, x, call):
        """Add the position in the sequence and, for a `Timestep`, the step in depth."""
        if self.position is None:
            return x
        places = block_positions(x, call.query_positions, call.cache, call.segment_ids)
        step = {"step": number} if self.position.counts_steps else {}
        return self.position(x, places, **step)

    # Those of `Stack` hold a list of blocks.
    __repr__ = registry.Configurable.__repr__
    get_config = registry.Composite.get_config
