"""The contract between depths and blocks: one object with the arguments of a call."""

import dataclasses

import keras

from keras_attn.attention.masks import keras_mask
from keras_attn.registry import ArgumentRepr


@dataclasses.dataclass(frozen=True)
class CallContext:
    """Arguments of one call beside its input, passed on from depths to blocks and sublayers.

    Attributes are the call arguments of `Block`.
    """

    context: object = None
    padding_mask: object = None
    context_padding_mask: object = None
    attention_mask: object = None
    query_positions: object = None
    key_positions: object = None
    memory: object = None
    memory_mask: object = None
    cache: dict | None = None
    context_attention_mask: object = None
    return_attention_scores: bool = False
    training: bool | None = None

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def with_keras_masks(self, x):
        """Return the call with Keras's implicit masks of `x` and `context` where it has none.

        With a cache the mask would have to cover the cached keys, so only an explicit one counts.
        """
        padding_mask, context_padding_mask = self.padding_mask, self.context_padding_mask
        if padding_mask is None and self.cache is None:
            padding_mask = keras_mask(x)
        if context_padding_mask is None:
            context_padding_mask = keras_mask(self.context)
        return self.replace(padding_mask=padding_mask, context_padding_mask=context_padding_mask)


class Block(ArgumentRepr, keras.layers.Layer):
    """Base class of what a depth repeats: a layer from (B, T, D) to (B, T, D).

    A subclass defines `apply`. Layers call each other's `apply`; users call the layer itself.

    Attributes:
        attention, cross_attention, feed_forward: the sublayers, whose states a cache keeps; None
            where there is none.
        needs_closing_norm: True if the block leaves its output unnormalised, so a stack adds a
            final norm.

    Call arguments:
        x: (B, T, D). context: (B, S, D), for cross-attention.
        padding_mask: bool (B, T) of `x`; context_padding_mask: bool (B, S) of `context`; by
            default Keras's masks of the two.
        attention_mask, query_positions, key_positions: passed to the self-attention.
        context_attention_mask: passed to the cross-attention, broadcastable to (B, N, T, S).
        memory: (B, M, D), the block's inputs before `x`: more keys for the self-attention, which
            the residual normalises as it does `x`. Masks and positions of keys are then those of
            M + T keys.
        memory_mask: bool (B, M), True where a slot of the memory is filled; by default everywhere.
        cache: dict with the caches of `attention`, for cross-attention `cross_attention`, and of a
            `feed_forward` that mixes positions.
        return_attention_scores: bool.

    Returns:
        (B, T, D); then, if asked for, a dict of each attention's scores; then, with `cache`, the
        new cache.
    """

    attention = None
    cross_attention = None
    feed_forward = None
    needs_closing_norm = False

    def apply(self, x, call):
        """Compute the block for a `CallContext`, whose masks are complete.

        Returns:
            The output; and a dict of what else the call asks for: `scores`, then `cache`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `apply`.")

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
        call = CallContext(
            context=context,
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
        x, extras = self.apply(x, call.with_keras_masks(x))
        return (x, *extras.values()) if extras else x

    def compute_output_spec(self, x, context=None, **kwargs):
        if kwargs.get("cache") is not None or kwargs.get("return_attention_scores"):
            return super().compute_output_spec(x, context, **kwargs)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)
