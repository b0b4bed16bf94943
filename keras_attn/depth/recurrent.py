"""One block, repeated."""

import functools

import keras

from keras_attn import positions, registry
from keras_attn.attention.positions import block_positions
from keras_attn.depth.stack import Stack
from keras_attn.ops.checks import check_sizes


@registry.register
class Recurrent(Stack):
    """One block repeated: a stack whose layers share their weights.

        H^t = block(H^{t-1} + P^t),   t = 1 .. T

    Depth for the price of one block's weights: recurrent in depth, where an RNN is in time, and
    parallel along the sequence. `position` is added before each step, inside the residual, so
    nothing else should add positions to `x`. A cache has keys and values of its own for each step.
    Time and memory are those of a `Stack` of T blocks.

    Args:
        block: a block, or a function that is called with 0 and gives one. A `Stack`, too, is a
            block, where neither a cache nor a memory is needed.
        num_steps: int. Number of steps T.
        position: name or object of the position axis, such as `"timestep"`; None for none.
        remat: bool. Whether the backward pass computes the steps again, as `Stack`.

    Call arguments:
        As `Stack`, each step in the place of a layer.

    Returns:
        As `Stack`.

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

    def __init__(self, block, num_steps, position=None, remat=False, **kwargs):
        check_sizes(num_steps=num_steps)
        block = registry.deserialize(block) if isinstance(block, dict) else block
        block = block if isinstance(block, keras.layers.Layer) or not callable(block) else block(0)
        if not isinstance(block, keras.layers.Layer):
            raise ValueError(
                f"`block` must be a layer or a function that gives one. Received: {block!r}."
            )
        super().__init__([block] * num_steps, remat=remat, **kwargs)
        self.block = block
        self.num_steps = num_steps
        if position is not None:
            position = positions.get(position, dtype=self.dtype_policy)
        self.position = position

    def build(self, x_shape, context_shape=None):
        super().build(x_shape, context_shape)
        if self.position is not None:
            registry.build_once(self.position, x_shape)

    def initial_cache(self, batch_size, max_length):
        """Empty caches, one for each step, with one count of filled slots, as `Stack`."""
        if not hasattr(self.block, "attention"):
            raise ValueError(
                "A cache needs a `block` with one attention layer, as a `TransformerBlock` has. "
                f"Received: block={self.block!r}."
            )
        return super().initial_cache(batch_size, max_length)

    def context_cache(self, context):
        """Complete cross-attention caches of `context` (B, S, D): for all steps the same."""
        return [self.block.cross_attention.context_cache(context)] * self.num_steps

    def _steps(self, keep_output):
        steps = super()._steps(keep_output)
        return [functools.partial(self._step, number, step) for number, step in enumerate(steps)]

    def _step(self, number, step, x, arguments):
        return step(self._with_position(number, x, arguments), arguments)

    def _with_position(self, number, x, arguments):
        """What the block reads at a step: `x` and where it stands, in the sequence and in depth."""
        if self.position is None:
            return x
        places = block_positions(x, arguments["query_positions"], arguments["cache"])
        if getattr(self.position, "counts_steps", False):
            return self.position(x, places, step=number)
        return self.position(x, places)

    def get_config(self):
        config = keras.layers.Layer.get_config(self)
        position = None if self.position is None else registry.serialize(self.position)
        return {
            **config,
            "block": registry.serialize(self.block),
            "num_steps": self.num_steps,
            "position": position,
            "remat": self.remat,
        }
