"""Blocks one after another."""

import functools
import inspect

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.masks import keras_mask
from keras_attn.backend.remat import remat_chain
from keras_attn.depth import caches
from keras_attn.ops.checks import check_shape, check_sizes
from keras_attn.ops.memory_slots import filled_slots
from keras_attn.ops.shapes import size

# What a block is called with beside x, `training` and what only some have.
ARGUMENTS = (
    "padding_mask",
    "context_padding_mask",
    "attention_mask",
    "query_positions",
    "key_positions",
    "cache",
    "return_attention_scores",
)


@registry.register
class Stack(keras.layers.Layer):
    """Blocks one after another, each with weights of its own.

        x_l = block_l(x_{l-1}),   l = 1 .. L

    If the blocks' residual leaves the sum unnormalised (`PreNorm`), one LayerNorm ends the stack.
    Cost: the sum of the blocks.

    Args:
        block: function from the layer's index to a block, so that layers may differ; or a list of
            blocks.
        num_layers: int. Number of blocks L; by default the length of the list.
        remat: bool. Whether the backward pass computes the blocks again instead of keeping what
            they computed: O(sqrt(L)) (B, T, D) and one block's computation in memory, for one more
            forward pass, or two if L > 16.

    Call arguments:
        x: (B, T, D). context: (B, S, D), for blocks with cross-attention.
        padding_mask, context_padding_mask, attention_mask, query_positions, key_positions,
            context_attention_mask: as `TransformerBlock`.
        memory, memory_length: the state of a `keras_attn.memory.SegmentMemory`, (B, L, M, D) and
            (B,): what each block read before `x`. Without a length all slots are filled.
        cache: from `initial_cache`; with cross-attention also `context_cache`, from the method of
            that name, in place of `context`.
        return_attention_scores, return_hidden_states: bool.

    Returns:
        (B, T, D); then, if asked for, a list of each block's scores; then, with `cache`, the new
        cache, or with `memory` what each block has read, (B, L, T, D), to extend the memory by;
        then, if asked for, a list of each block's output.

    Raises:
        ValueError: if `num_layers` < 1 or differs from the length of a list of blocks, or what
            `block` gives is no block.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> stack = keras_attn.depth.Stack(
        ...     lambda index: TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32)), 3)
        >>> len(stack.blocks)
        3

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1; the closing
        norm: [Xiong et al., 2020](https://arxiv.org/abs/2002.04745), section 3.1, table 1.
    """

    def __init__(self, block, num_layers=None, remat=False, **kwargs):
        super().__init__(**kwargs)
        if isinstance(block, keras.layers.Layer) or not callable(block):
            if not isinstance(block, (list, tuple)):
                raise ValueError(
                    "`block` must be a function of the layer's index or a list of blocks; one "
                    f"block for all layers makes a `Recurrent`. Received: block={block!r}."
                )
            block = [
                keras.saving.deserialize_keras_object(b) if isinstance(b, dict) else b
                for b in block
            ]
            num_layers = len(block) if num_layers is None else num_layers
            if num_layers != len(block):
                raise ValueError(
                    "`num_layers` must be the number of blocks in the list. "
                    f"Received: num_layers={num_layers}, {len(block)} blocks."
                )
        check_sizes(num_layers=num_layers)
        self.num_layers = num_layers
        self.remat = bool(remat)
        self.blocks = [block(i) if callable(block) else block[i] for i in range(num_layers)]
        for index, layer in enumerate(self.blocks):
            if not isinstance(layer, keras.layers.Layer):
                raise ValueError(f"`block` must give a layer. Received: {layer!r} at {index}.")
            if not _is_block(layer):
                raise ValueError(
                    "`block` must give layers that are called as a `TransformerBlock` is, with "
                    f"{', '.join(ARGUMENTS)}. Received: {layer!r} at {index}."
                )
        self.norm = None
        if getattr(self.blocks[-1], "needs_closing_norm", False):
            self.norm = keras.layers.LayerNormalization(
                epsilon=self.blocks[-1].residual.epsilon, dtype=self.dtype_policy, name="norm"
            )
        self.supports_masking = True

    def build(self, x_shape, context_shape=None):
        shapes = (x_shape,) if context_shape is None else (x_shape, context_shape)
        for block in self.blocks:
            registry.build_once(block, *shapes)
            if isinstance(block, Stack):
                width = block.compute_output_spec(keras.KerasTensor(x_shape)).shape[-1]
                if width != x_shape[-1]:
                    raise ValueError(
                        "`block` must give what is as wide as what it is given. "
                        f"Received: {block!r}, which makes {width} of {x_shape[-1]}."
                    )
        if self.norm is not None:
            registry.build_once(self.norm, x_shape)

    def initial_cache(self, batch_size, max_length):
        """Empty caches of all blocks, with one count of filled slots.

        With a `max_length` of None they grow, and need no count.
        """
        return caches.initial(self.blocks, batch_size, max_length)

    def context_cache(self, context):
        """Complete cross-attention caches of `context` (B, S, D), one a block."""
        return [block.cross_attention.context_cache(context) for block in self.blocks]

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
        memory_length=None,
        cache=None,
        context_cache=None,
        context_attention_mask=None,
        return_attention_scores=False,
        return_hidden_states=False,
        training=None,
    ):
        if padding_mask is None and cache is None:
            padding_mask = keras_mask(x)
        if context_padding_mask is None:
            context_padding_mask = keras_mask(context)
        memories = None if memory is None else self._memories(memory, memory_length, x)
        calls = []
        for i in range(self.num_layers):
            block_cache = None
            if cache is not None:
                block_cache = caches.of_block(i, cache, context_cache)
            arguments = {"context": context} if context is not None else {}
            if context_attention_mask is not None:
                arguments["context_attention_mask"] = context_attention_mask
            if memories is not None:
                arguments.update(memories[i])
            calls.append(
                {
                    **arguments,
                    "padding_mask": padding_mask,
                    "context_padding_mask": context_padding_mask,
                    "attention_mask": attention_mask,
                    "query_positions": query_positions,
                    "key_positions": key_positions,
                    "cache": block_cache,
                    "return_attention_scores": return_attention_scores,
                    "training": training,
                }
            )
        x, rests = self._run(x, calls, return_hidden_states)
        hidden_states = [rest.pop() for rest in rests] if return_hidden_states else None
        if self.norm is not None:
            x = self.norm(x)
        results = [x]
        if return_attention_scores:
            results.append([rest[0] for rest in rests])
        if cache is not None:
            results.append(caches.joined([rest[-1] for rest in rests]))
        if memories is not None:
            results.append(ops.stack([rest[-1] for rest in rests], axis=1))  # (B, L, T, D)
        if return_hidden_states:
            results.append(hidden_states)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, x, calls, keep_output):
        """The last x, and what else each block gave, at the end the memory's new part and itself."""
        steps = self._steps(keep_output)
        if self.remat and calls[0]["cache"] is None:
            return remat_chain(steps, x, calls, add_loss=self.add_loss)
        rests = []
        for step, arguments in zip(steps, calls, strict=True):
            x, rest = step(x, arguments)
            rests.append(rest)
        return x, rests

    def _steps(self, keep_output):
        """Functions of x and a block's arguments, one a block, that give what `_run` gives."""
        return [functools.partial(_step, block, keep_output) for block in self.blocks]

    def _memories(self, memory, memory_length, x):
        """The arguments of each block that say what it read before."""
        batch, _, hidden_dim = x.shape
        if any(isinstance(block, Stack) for block in self.blocks):
            raise ValueError(
                "A memory keeps what blocks with one attention layer read. "
                f"Received: a memory for blocks that are stacks, {self.blocks[0]!r}."
            )
        check_shape(memory, "memory", (batch, self.num_layers, None, hidden_dim))
        filled = None
        if memory_length is not None:
            memory_length = ops.convert_to_tensor(memory_length)
            check_shape(memory_length, "memory_length", (batch,))
            filled = filled_slots(memory_length, size(memory, 2))  # (B, M)
            # An empty slot may hold anything, and no weight makes a number of what is none.
            memory = ops.where(filled[:, None, :, None], memory, 0)
        memories = ops.unstack(memory, self.num_layers, axis=1)
        return [{"memory": memory, "memory_mask": filled} for memory in memories]

    def compute_output_spec(self, x, context=None, *, memory=None, cache=None, **kwargs):
        returned = "return_attention_scores", "return_hidden_states"
        if cache is not None or any(kwargs.get(name) for name in returned):
            return super().compute_output_spec(x, context, memory=memory, cache=cache, **kwargs)
        output = keras.KerasTensor(x.shape, dtype=self.compute_dtype)
        if memory is None:
            return output
        batch, length, hidden_dim = x.shape
        read = (batch, self.num_layers, length, hidden_dim)
        return output, keras.KerasTensor(read, dtype=self.compute_dtype)

    def get_config(self):
        blocks = [registry.serialize(block) for block in self.blocks]
        return {
            **super().get_config(),
            "block": blocks,
            "num_layers": self.num_layers,
            "remat": self.remat,
        }


def _is_block(layer):
    """Whether a layer takes the arguments that every block is called with."""
    try:
        inspect.signature(layer.call).bind(None, **dict.fromkeys(ARGUMENTS))
    except TypeError:
        return False
    return True


def _step(block, keep_output, x, arguments):
    outputs = block(x, **arguments)
    output, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
    rest += [x] if "memory" in arguments else []
    return output, [*rest, output] if keep_output else rest
