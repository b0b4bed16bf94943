"""Blocks one after another."""

import keras
from keras import ops

from keras_attn import axis
from keras_attn.memory.kv_cache import KVCache
from keras_attn.ops.checks import check_sizes


@axis.register
class Stack(keras.layers.Layer):
    """Blocks one after another, each with weights of its own.

        x_l = block_l(x_{l-1}),   l = 1 .. L

    If the blocks' residual leaves the sum unnormalised (`PreNorm`), one LayerNorm ends the stack.
    Cost: the sum of the blocks.

    Args:
        block: function from the layer's index to a block, so that layers may differ; or a list of
            blocks.
        num_layers: int. Number of blocks L; by default the length of the list.

    Call arguments:
        x: (B, T, D). context: (B, S, D), for blocks with cross-attention.
        padding_mask, context_padding_mask, attention_mask, query_positions, key_positions: as
            `TransformerBlock`.
        cache: from `initial_cache`; with cross-attention also `context_cache`, from the method of
            that name, in place of `context`.
        return_attention_scores: bool.

    Returns:
        (B, T, D); then, if asked for, a list of each block's scores; then, with `cache`, the new
        cache.

    Raises:
        ValueError: if `num_layers` < 1 or differs from the length of a list of blocks.

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

    def __init__(self, block, num_layers=None, **kwargs):
        super().__init__(**kwargs)
        if not callable(block):
            if not isinstance(block, (list, tuple)):
                raise ValueError(
                    "`block` must be a function of the layer's index or a list of blocks. "
                    f"Received: block={block!r}."
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
        self.blocks = [block(i) if callable(block) else block[i] for i in range(num_layers)]
        for index, layer in enumerate(self.blocks):
            if not isinstance(layer, keras.layers.Layer):
                raise ValueError(f"`block` must give a layer. Received: {layer!r} at {index}.")
        self.norm = None
        if getattr(self.blocks[-1], "needs_closing_norm", False):
            self.norm = keras.layers.LayerNormalization(
                epsilon=self.blocks[-1].residual.epsilon, dtype=self.dtype_policy, name="norm"
            )
        self.supports_masking = True

    def build(self, x_shape, context_shape=None):
        shapes = (x_shape,) if context_shape is None else (x_shape, context_shape)
        for block in self.blocks:
            axis.build_once(block, *shapes)
        if self.norm is not None:
            axis.build_once(self.norm, x_shape)

    def initial_cache(self, batch_size, max_length):
        """Empty self-attention caches of all blocks, with one count of filled slots.

        With a `max_length` of None they grow, and need no count.
        """
        # Whole, since prompts of different length and beams say where each key stands.
        memory = KVCache(max_length, whole=True)
        caches = [memory.initial(block.attention, batch_size) for block in self.blocks]
        layers = [{"key": cache["key"], "value": cache["value"]} for cache in caches]
        cache = {"layers": layers}
        return cache if max_length is None else {"index": caches[0]["index"], **cache}

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
        cache=None,
        context_cache=None,
        return_attention_scores=False,
        training=None,
    ):
        scores, layers = [], []
        index = {} if cache is None or "index" not in cache else {"index": cache["index"]}
        for i, block in enumerate(self.blocks):
            block_cache = None
            if cache is not None:
                block_cache = {"attention": {"index": None, **index, **cache["layers"][i]}}
                if context_cache is not None:
                    block_cache["cross_attention"] = context_cache[i]
            arguments = {"context": context} if context is not None else {}
            outputs = block(
                x,
                **arguments,
                padding_mask=padding_mask,
                context_padding_mask=context_padding_mask,
                attention_mask=attention_mask,
                query_positions=query_positions,
                key_positions=key_positions,
                cache=block_cache,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            x, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
            if return_attention_scores:
                scores.append(rest[0])
            if cache is not None:
                attention = rest[-1]["attention"]
                layers.append({"key": attention["key"], "value": attention["value"]})
        if self.norm is not None:
            x = self.norm(x)
        results = [x]
        if return_attention_scores:
            results.append(scores)
        if cache is not None:
            index = {name: filled + ops.shape(x)[1] for name, filled in index.items()}
            results.append({**index, "layers": layers})
        return results[0] if len(results) == 1 else tuple(results)

    def compute_output_spec(self, x, context=None, *, cache=None, **kwargs):
        if cache is not None or kwargs.get("return_attention_scores"):
            return super().compute_output_spec(x, context, cache=cache, **kwargs)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def get_config(self):
        blocks = [axis.serialize(block) for block in self.blocks]
        return {**super().get_config(), "block": blocks, "num_layers": self.num_layers}
