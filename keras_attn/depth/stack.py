"""Blocks one after another."""

import functools
import inspect

import keras
import numpy as np
from keras import backend, ops

from keras_attn import registry
from keras_attn.attention import captures
from keras_attn.backend.loop_invariants import in_loop_invariants
from keras_attn.backend.remat import chain_recomputations, chain_states, remat_chain, share_traces
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.depth import caches
from keras_attn.layers.block import Block, CallContext, takes_call_context
from keras_attn.memory.segment_memory import filled_slots
from keras_attn.norms.batch_norm import BatchNorm, masked_norm
from keras_attn.ops.checks import check_rates, check_shape, check_sizes
from keras_attn.ops.random import replica_generator
from keras_attn.ops.shapes import size


def make_block(block, index):
    """Return `block(index)`; refuse a function that does not take the index."""
    try:
        inspect.signature(block).bind(index)
    except TypeError as error:
        raise ValueError(
            "`block` must be a function of the layer's index, such as "
            f"`lambda index: TransformerBlock(...)`. Received: block={block!r}."
        ) from error
    return block(index)


def _make_blocks(block, num_layers):
    """Return the blocks of a list, or those that a function makes; refuse anything else."""
    if isinstance(block, (list, tuple)):
        blocks = [registry.revive(layer) for layer in block]
        num_layers = len(blocks) if num_layers is None else num_layers
        if num_layers != len(blocks):
            raise ValueError(
                "`num_layers` must be the number of blocks in the list. "
                f"Received: num_layers={num_layers}, {len(blocks)} blocks."
            )
        check_sizes(num_layers=num_layers)
    elif isinstance(block, keras.layers.Layer) or not callable(block):
        raise ValueError(
            "`block` must be a function of the layer's index, such as "
            "`lambda index: TransformerBlock(...)`, or a list of blocks; one block for all "
            f"layers makes a `Recurrent`. Received: block={block!r}."
        )
    else:
        check_sizes(num_layers=num_layers)
        blocks = [make_block(block, index) for index in range(num_layers)]
    for index, layer in enumerate(blocks):
        if not isinstance(layer, Block):
            raise ValueError(
                "`block` must give layers of the class `keras_attn.layers.Block`, such as a "
                f"`TransformerBlock`. Received: {layer!r} at {index}."
            )
    return blocks


def has_batch_norm(block):
    """Return True if a block has a `BatchNorm`."""
    return any(isinstance(layer, BatchNorm) for layer in flatten_layers(block))


class _LayerCall(keras.layers.Layer):
    """Call a function as a layer, so that layers inside learn of `training` from Keras.

    A backward pass that computes a block again is inside of no call.
    """

    def call(self, *, function, training=None):
        return function()


def refuse_batch_norm(depth, block):
    """Raise a `ValueError` if a block that runs several times, or backwards, has a `BatchNorm`."""
    if has_batch_norm(block):
        raise ValueError(
            f"`block` of a `{type(depth).__name__}` must not have a `BatchNorm`, whose averages "
            "are those of one run of a block: use a `Stack`, or another norm, such as "
            f"`LayerNorm()`. Received: {block!r}."
        )


@registry.register
class Stack(Block):
    """Blocks one after another, each with weights of its own.

        x_l = block_l(x_{l-1}),   l = 1 .. L

        training with `drop`:  x_l = x_{l-1} + b_l (block_l(x_{l-1}) - x_{l-1}),
        b_l = 1 / p_l with probability p_l = 1 - drop l / L, else 0,   for each row of the batch

    If the blocks' residual leaves the sum unnormalised (`PreNorm`), a norm of the same kind ends
    the stack. `drop` is stochastic depth: each row leaves out blocks at random, and the mean over
    b_l is the block of inference. A block that is left out is computed all the same: it writes
    caches, and saves no time. Cost: the sum of the blocks.

    In training on TensorFlow, blocks that differ in names and weights only are traced once; those
    with a class or function of your own, mixtures of experts and depths are traced one by one.

    Use it for every model of separate blocks; set `remat=True` to train in less memory.

    Args:
        block: function from the layer's index to a `Block`, so that layers may differ; or a list
            of blocks.
        num_layers: int. Number of blocks L; by default the length of the list.
        remat: bool. If True, the backward pass recomputes the blocks' activations: memory for
            O(sqrt(L)) tensors (B, T, D) and one block's activations, time for one more forward
            pass, or two if L > 16.
        drop: float in [0, 1). Probability that a row leaves out the last block in training.

    Call arguments:
        x: (B, T, D). It and the arguments not listed here are those of `keras_attn.layers.Block`.
        memory, memory_length: the state of a `keras_attn.memory.SegmentMemory`, (B, L, M, D) and
            (B,): each block's inputs before `x`. That of a `KNNMemory` has keys and values of one
            block. Without a length all slots are filled.
        cache: from `initial_cache`; with cross-attention also `context_cache`, from the method of
            that name, in place of `context`.
        return_hidden_states: bool.

    Returns:
        (B, T, D), alone or first of a tuple. Then follow, if asked for, a list of each block's
        scores; with `cache` the new cache, or with `memory` each block's input, (B, L, T, D), to
        extend the memory by; and, if asked for, a list of each block's output.

    Raises:
        ValueError: if `num_layers` < 1 or differs from the length of a list of blocks, or `block`
            gives something other than a `Block`, or `drop` is outside [0, 1).

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> stack = keras_attn.depth.Stack(
        ...     lambda index: TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32)), 3)
        >>> len(stack.blocks)
        3

    Differs from the paper: none without `drop`; Huang et al. leave a block out for all rows.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1; the closing
        norm: [Xiong et al., 2020](https://arxiv.org/abs/2002.04745), section 3.1, table 1; `drop`:
        [Huang et al., 2016](https://arxiv.org/abs/1603.09382), section 3, eq. 4.
    """

    runs_rows = True  # False for a subclass that reads the axis of positions
    shares_block = False

    def __init__(self, block, num_layers=None, remat=False, drop=0.0, **kwargs):
        super().__init__(**kwargs)
        check_rates(drop=drop)
        self.remat = bool(remat)
        self.drop = drop
        self.seed_generator = keras.random.SeedGenerator() if drop else None
        self.blocks = _make_blocks(block, num_layers)
        self.num_layers = len(self.blocks)
        if len({*map(id, self.blocks)}) < self.num_layers and not self.shares_block:
            raise ValueError(
                "`block` must give a block of its own for each layer; one block for all layers "
                f"makes a `Recurrent`. Received: {self.blocks[0]!r} more than once."
            )
        self.norm = None
        if self.blocks[-1].needs_closing_norm:
            self.norm = registry.copy(self.blocks[-1].residual.norm)

    def build(self, x_shape, context_shape=None):
        shapes = (x_shape,) if context_shape is None else (x_shape, context_shape)
        for block in self.blocks:
            registry.build_once(block, *shapes)
            if isinstance(block, Stack):
                width = block.compute_output_spec(keras.KerasTensor(x_shape)).shape[-1]
                if width != x_shape[-1]:
                    raise ValueError(
                        "`block` must give an output as wide as its input. "
                        f"Received: {block!r}, which makes {width} of {x_shape[-1]}."
                    )
        if self.norm is not None:
            registry.build_once(self.norm, x_shape)

    @property
    def num_recomputations(self):
        """Number of times that the backward pass computes the blocks again."""
        return chain_recomputations(self.num_layers) if self.remat else 0

    @property
    def num_kept_states(self):
        """Number of the blocks' inputs that are kept, where blocks are computed again."""
        return chain_states(self.num_layers)

    def initial_cache(self, batch_size, max_length, whole=True):
        """Return empty caches of all blocks; with a `max_length` of None they grow.

        They keep all keys, which prompts of different lengths and beams need; with `whole=False`,
        for one stream in each row, those that the blocks' patterns need.
        """
        return caches.initial(self.blocks, batch_size, max_length, whole)

    def rewind(self, cache, count):
        """Return a cache that is cut back to its first `count` slots."""
        return caches.rewind(cache, count)

    @property
    def keeps_sums(self):
        """True if a cache that is not `whole` has sums in place of the keys of every block."""
        return caches.can_be_sums(self.blocks)

    def context_cache(self, context):
        """Return complete cross-attention caches of `context` (B, S, D), one a block."""
        return caches.of_context(self.blocks, context)

    @takes_call_context
    def call(
        self,
        x,
        context=None,
        *,
        memory=None,
        memory_length=None,
        context_cache=None,
        return_hidden_states=False,
        **arguments,
    ):
        call = CallContext(context, **arguments).with_keras_masks(x)
        calls = self._calls_of_blocks(call, context_cache)
        if memory is not None:
            calls = self._calls_with_memory(calls, memory, memory_length, x)
        is_row = not return_hidden_states and self._drops_axis(x, call)
        x, extras = self._run(x[:, 0] if is_row else x, calls, keep_outputs=return_hidden_states)
        x = self._close(x, call.padding_mask)
        results = [ops.expand_dims(x, 1) if is_row else x]
        if call.return_attention_scores:
            results.append([extra["scores"] for extra in extras])
        if call.cache is not None:
            results.append(caches.join([extra["cache"] for extra in extras]))
        if memory is not None:
            results.append(self._read(extras))
        if return_hidden_states:
            results.append([extra["output"] for extra in extras])
        return results[0] if len(results) == 1 else tuple(results)

    def _calls_of_blocks(self, call, context_cache):
        """Return the `CallContext` of each block, with its own caches if there are any."""
        if call.cache is None:
            return [call] * self.num_layers
        own = (caches.of_block(i, call.cache, context_cache) for i in range(self.num_layers))
        return [call.replace(cache=cache) for cache in own]

    def apply(self, x, call):
        """Run the stack as a block of another depth."""
        x, extras = self._run(x, [call] * self.num_layers, keep_outputs=False)
        if not call.return_attention_scores:
            return self._close(x, call.padding_mask), {}
        return self._close(x, call.padding_mask), {"scores": [extra["scores"] for extra in extras]}

    def _drops_axis(self, x, call):
        """Return True if the blocks get one position as (B, D), without reshapes between them."""
        is_step = call.cache is not None and x.shape[1] == 1 and not call.training
        return is_step and self.runs_rows and all(block.takes_rows for block in self.blocks)

    def _close(self, x, padding_mask):
        return x if self.norm is None else masked_norm(self.norm, x, padding_mask)

    def _run(self, x, calls, keep_outputs):
        """Run the blocks, each with its `CallContext`.

        Returns:
            The last x; and for each block a dict of what else it gives: `scores`, `cache`, with a
            memory its `input`, with `keep_outputs` its `output`.
        """
        scales = self._row_scales(x, calls[0])
        is_remat = self.remat and calls[0].cache is None

        def run(number, x, arguments):  # nested tensors, which a `CallContext` is not
            fields, scale = arguments
            call = CallContext(**fields)
            apply = functools.partial(self._run_block, number, x, call, keep_outputs, scale)
            if not (is_remat and has_batch_norm(self.blocks[number])):
                return apply()
            layer_call = _LayerCall(dtype=self.dtype_policy, name="remat")
            return layer_call(function=apply, training=call.training)

        steps = [functools.partial(run, number) for number in range(len(calls))]
        arguments = list(zip(map(vars, calls), scales, strict=True))
        layers = self._sharing_blocks(calls[0])
        if is_remat:
            return remat_chain(steps, x, arguments, add_loss=self.add_loss, layers=layers)
        extras = []
        if layers:
            run = share_traces(steps, layers, run, self.add_loss, recomputes=False)
        for number, own in enumerate(arguments):
            x, extra = run(number, x, own)
            extras.append(extra)
        return x, extras

    def _sharing_blocks(self, call):
        """Return the blocks if one graph may be built for all of one kind, else none."""
        depends_on_block_alone = type(self)._block_input is Stack._block_input
        is_captured = captures.record is not None
        may_share = call.training and depends_on_block_alone and not is_captured
        if not self.remat:  # what is computed once is needed outside of the graph too
            may_share = may_share and call.cache is None and not in_loop_invariants()
            may_share = may_share and not any(map(has_batch_norm, self.blocks))
        return self.blocks if may_share else ()

    def _row_scales(self, x, call):
        return row_scales(x, self.drop, self.num_layers, call.training, self.seed_generator)

    def _run_block(self, number, x, call, keep_outputs=False, scale=None):
        output, extras = self._apply_block(number, self._block_input(number, x, call), call)
        output = scale_change(x, output, scale)  # a block that is left out adds no position either
        return output, {**extras, "output": output} if keep_outputs else extras

    def _apply_block(self, number, x, call):
        output, extras = self.blocks[number].apply(x, call)
        return output, extras if call.memory is None else {**extras, "input": x}

    def _block_input(self, number, x, call):
        """Return what the block of a number gets of the stream."""
        return x

    def _read(self, extras):
        """Return what a memory is extended by, (B, L, T, D): the blocks' inputs, or new keys."""
        looked_up = [e["cache"]["attention"]["new"] for e in extras if "cache" in e]
        return looked_up[0] if looked_up else ops.stack([e["input"] for e in extras], axis=1)

    def _calls_with_memory(self, calls, memory, memory_length, x):
        """Return the `CallContext` of each block with its memory and the mask of filled slots."""
        memories, filled = self._memories(memory, memory_length, x)
        pairs = zip(calls, memories, strict=True)
        return [c if m is None else c.replace(memory=m, memory_mask=filled) for c, m in pairs]

    def _memories(self, memory, memory_length, x):
        """Return the memory of each block, and the mask of their filled slots."""
        batch, _, hidden_dim = x.shape
        if any(isinstance(block, Stack) for block in self.blocks):
            raise ValueError(
                "A memory keeps the inputs of blocks with one attention layer. "
                f"Received: a memory for blocks that are stacks, {self.blocks[0]!r}."
            )
        check_shape(memory, "memory", (batch, *self._memory_shape(hidden_dim)))
        filled = None
        if memory_length is not None:
            memory_length = ops.convert_to_tensor(memory_length)
            check_shape(memory_length, "memory_length", (batch,))
            filled = filled_slots(memory_length, size(memory, 2))  # (B, M)
            # Zero the empty slots: NaN times 0 is NaN.
            memory = ops.where(ops.expand_dims(filled, (1, 3)), memory, 0)
        if self.retrieving_layers:
            return [memory if block.retrieves else None for block in self.blocks], filled
        return ops.unstack(memory, self.num_layers, axis=1), filled

    @property
    def retrieving_layers(self):
        """The attention layers that look keys up in a memory, a list."""
        return [block.attention for block in self.blocks if block.retrieves]

    def _memory_shape(self, hidden_dim):
        """Return the sizes (L, M, D) of a memory: the blocks' inputs, or of one layer its keys."""
        if not self.retrieving_layers:
            return self.num_layers, None, hidden_dim
        attention = self.retrieving_layers[0]
        return attention.num_key_value_heads, None, attention.key_dim + attention.value_dim

    def compute_output_spec(self, x, context=None, *, memory=None, cache=None, **kwargs):
        returned = kwargs.get("return_attention_scores"), kwargs.get("return_hidden_states")
        if cache is not None or any(returned):
            return keras.layers.Layer.compute_output_spec(
                self, x, context, memory=memory, cache=cache, **kwargs
            )
        output = keras.KerasTensor(x.shape, dtype=self.compute_dtype)
        if memory is None:
            return output
        batch, length, hidden_dim = x.shape
        num_layers, _, width = self._memory_shape(hidden_dim)
        read = (batch, num_layers, length, width)
        return output, keras.KerasTensor(read, dtype=self.compute_dtype)

    def __repr__(self):
        more = ", ..." if self.num_layers > 1 else ""  # the blocks are mostly alike
        return f"{type(self).__name__}([{self.blocks[0]!r}{more}], {self.num_layers})"

    def get_config(self):
        return {**super().get_config(), "block": registry.serialize(self.blocks)}


def row_scales(x, rate, num_blocks, training, seed):
    """Return for each block the factors of its change of the rows of x, (B, 1, 1).

        factor = 1 / p_l with probability p_l = 1 - rate l / L, else 0

    All are drawn at once and outside of the blocks, so that a backward pass which computes a block
    again reads the same numbers. Without a rate, and outside of training, they are None.
    """
    if not (rate and training):
        return [None] * num_blocks
    kept = 1.0 - rate * np.arange(1, num_blocks + 1) / num_blocks
    dtype = backend.result_type(x.dtype, "float32")
    shape = (num_blocks, size(x, 0), 1, 1)
    numbers = ops.unstack(
        keras.random.uniform(shape, dtype=dtype, seed=replica_generator(seed)), num_blocks
    )
    return [ops.cast(u < p, dtype) / p for u, p in zip(numbers, kept.tolist(), strict=True)]


def scale_change(before, after, scale):
    """Return before + scale (after - before), in the precision of `scale`; `after` for None."""
    if scale is None:
        return after
    x = ops.cast(before, scale.dtype)
    return ops.cast(x + scale * (ops.cast(after, scale.dtype) - x), after.dtype)
