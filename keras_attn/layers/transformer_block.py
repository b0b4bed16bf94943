"""Blocks of attention and a feed-forward network, one after the other or side by side."""

from functools import partial

import keras
from keras import ops

from keras_attn import registry, residuals
from keras_attn.attention.inputs import join_masks
from keras_attn.backend.replicas import keep_rows
from keras_attn.feed_forward import PositionMixer
from keras_attn.layers.block import Block, carry_mask, check_cross_attention, missing_arguments
from keras_attn.ops.checks import check_given, check_rates, check_shape
from keras_attn.ops.dropout import Dropout

# The arguments, beside query and value, by which a block calls an attention layer.
_ATTENTION_ARGUMENTS = {
    "value_mask",
    "attention_mask",
    "query_positions",
    "key_positions",
    "cache",
    "return_attention_scores",
    "training",
}


@registry.register
class TransformerBlock(Block):
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

    Call arguments and returns:
        As `keras_attn.layers.Block`: from x (B, T, D), a context (B, S, D) for cross-attention,
        masks, positions, a memory or a cache to (B, T, D).

    Raises:
        ValueError: if only one of context and cross-attention is given, a memory comes with a
            cache, a sublayer is not a layer of its kind, the score of `cross_attention` depends on
            distances, or `dropout` is outside [0, 1).

    Example:
        >>> import keras
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> block(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none with the default residual.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1, figure 1.
    """

    depends_on_config_only = True

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
        layers = {"attention": attention, "feed_forward": feed_forward}
        if cross_attention is not None:
            layers["cross_attention"] = cross_attention
        for name, layer in layers.items():
            layer = registry.revive(layer)
            if not isinstance(layer, keras.layers.Layer):
                raise ValueError(f"`{name}` must be a layer. Received: {name}={layer!r}.")
            _check_sublayer(name, layer)
            setattr(self, name, layer)
        check_cross_attention("cross_attention", self.cross_attention)
        check_rates(dropout=dropout)
        residual = residuals.get(residual, dtype=self.dtype_policy)
        self.attention_residual = self._residual_of("attention", residual)
        if cross_attention is not None:
            self.cross_attention_residual = self._residual_of("cross_attention", residual)
        self.feed_forward_residual = self._residual_of("feed_forward", residual)
        self.dropout = dropout
        self.drop = Dropout(dropout, dtype=self.dtype_policy)

    def _residual_of(self, sublayer, residual):
        """Return the residual of a sublayer; a subclass may choose another for one of them."""
        return registry.copy(residual)

    @property
    def residual(self):
        """The residual of the attention, of which those of the other sublayers are copies."""
        return self.attention_residual

    @property
    def needs_closing_norm(self):
        return self.residual.needs_closing_norm

    @property
    def takes_rows(self):
        kinds = ("attention", "cross_attention", "feed_forward")
        parts = [getattr(self, name) for name in kinds if getattr(self, name) is not None]
        parts += [getattr(self, f"{name}_residual", None) for name in kinds]
        return all(getattr(part, "takes_rows", False) for part in parts if part is not None)

    def build(self, x_shape=None, context_shape=None):
        check_given(x=x_shape)
        self._check_context(context_shape)
        registry.build_once(self.attention, x_shape, x_shape)
        registry.build_once(self.attention_residual, x_shape, x_shape)
        if self.cross_attention is not None:
            registry.build_once(self.cross_attention, x_shape, context_shape)
            registry.build_once(self.cross_attention_residual, x_shape, x_shape)
        registry.build_once(self.feed_forward, x_shape)
        registry.build_once(self.feed_forward_residual, x_shape, x_shape)

    def apply(self, x, call):
        x = carry_mask(x, call, self.attention_residual)
        steps, extras = self.sublayers(x, call)
        for residual, sublayer in steps:
            x = keep_rows(residual.after(x, sublayer(residual.before(x), call.context)))
        return x, extras

    def sublayers(self, x, call):
        """Return the sublayers of one call, for depths that add up their outputs otherwise.

        Returns:
            A list of pairs of a residual and a function, called as `apply` does; and the dict of
            what else `apply` returns, complete once all functions have run.
        """
        self._check_call(x, call)
        has_cache = call.cache is not None or self._looks_up(call)
        asked = {"scores": call.return_attention_scores, "cache": has_cache}
        extras = {kind: {} for kind, is_asked in asked.items() if is_asked}
        steps = [(self.attention_residual, self._attend_to_itself)]
        if self.cross_attention is not None:
            steps.append((self.cross_attention_residual, self._attend_to_context))
        steps.append((self.feed_forward_residual, self._feed_forward))
        return [(residual, partial(step, call, extras)) for residual, step in steps], extras

    def _attend_to_itself(self, call, extras, x, context):
        value, padding_mask = x, call.padding_mask
        if call.memory is not None and not self.retrieves:
            value = ops.concatenate([self.attention_residual.before(call.memory), x], axis=1)
            padding_mask = join_masks(
                (call.memory, call.memory_mask, "memory_mask"), (x, padding_mask, "padding_mask")
            )
        arguments = {"value_mask": padding_mask, **_of_pairs(call)}
        return self._attend("attention", x, value, arguments, call, extras)

    def _attend_to_context(self, call, extras, x, context):
        masks = {
            "value_mask": call.context_padding_mask,
            "attention_mask": call.context_attention_mask,
        }
        return self._attend("cross_attention", x, context, masks, call, extras)

    def _attend(self, name, query, value, arguments, call, extras):
        """Call one of the attention layers, and keep its scores and its cache in `extras`."""
        cache = None if call.cache is None else call.cache[name]
        has_next = cache is not None
        if name == "attention" and self._looks_up(call):
            arguments |= {"memory": call.memory, "memory_mask": call.memory_mask}
            has_next = True  # the keys and values for the memory
        output = getattr(self, name)(
            query,
            value,
            cache=cache,
            return_attention_scores=call.return_attention_scores,
            training=call.training,
            **arguments,
        )
        asked = {"scores": call.return_attention_scores, "cache": has_next}
        if any(asked.values()):
            output, *others = output
            kinds = [kind for kind, is_asked in asked.items() if is_asked]
            for kind, value in zip(kinds, others, strict=True):
                extras[kind][name] = value
        return self._dropped(name, output, query, call)

    def _looks_up(self, call):
        return call.memory is not None and self.retrieves

    def _feed_forward(self, call, extras, x, context):
        arguments = {}
        # With a cache the padding mask is that of its slots.
        has_cache = call.cache is not None and isinstance(self.feed_forward, PositionMixer)
        takes_mask = getattr(self.feed_forward, "takes_padding_mask", False)
        if has_cache or call.cache is None and takes_mask:
            arguments["padding_mask"] = call.padding_mask
        if has_cache:
            arguments |= {"cache": call.cache["feed_forward"], **_of_pairs(call)}
        output = self.feed_forward(x, training=call.training, **arguments)
        if has_cache:
            output, extras["cache"]["feed_forward"] = output
        return self._dropped("feed_forward", output, x, call)

    def _dropped(self, name, output, x, call):
        """Return the output of a sublayer for `x` after dropout; refuse one of another width."""
        widths = output.shape[-1], x.shape[-1]
        if None not in widths and widths[0] != widths[1]:
            raise ValueError(
                f"`{name}` must return as many features as it reads, which are added to them. "
                f"Received: {widths[0]} features for {widths[1]}."
            )
        return self.drop(output, training=call.training)

    def _check_call(self, x, call):
        if call.cache is None or call.context is not None:
            self._check_context(None if call.context is None else tuple(call.context.shape))
        if call.segment_ids is not None and isinstance(self.feed_forward, PositionMixer):
            raise ValueError(
                "`segment_ids` do not fit a feed-forward layer that mixes positions, which would "
                "read the neighbouring document. "
                f"Received: feed_forward of type {type(self.feed_forward).__name__}."
            )
        if call.memory is None:
            self._check_cache(call.cache)
            return
        if call.cache is not None:
            raise ValueError(
                "A call takes a `memory` or a `cache`, not both: a cache keeps all keys itself. "
                f"Received: memory of shape {tuple(call.memory.shape)}, "
                f"cache with {sorted(call.cache)}."
            )
        if not self.retrieves:
            check_shape(call.memory, "memory", (x.shape[0], None, x.shape[2]))
        if isinstance(self.feed_forward, PositionMixer):
            raise ValueError(
                "A `memory` does not fit a feed-forward layer that mixes positions, whose inputs "
                "it does not keep. "
                f"Received: feed_forward of type {type(self.feed_forward).__name__}."
            )

    def _check_cache(self, cache):
        names = {"attention"} if self.cross_attention is None else {"attention", "cross_attention"}
        if isinstance(self.feed_forward, PositionMixer):
            names.add("feed_forward")
        if cache is not None and not names <= cache.keys():
            raise ValueError(
                f"`cache` must have the caches of {' and '.join(sorted(names))}, as a depth's "
                f"`initial_cache` makes them. Received: a cache of {sorted(cache)}."
            )

    def _check_context(self, shape):
        if (shape is None) != (self.cross_attention is None):
            raise ValueError(
                "`context` is needed with `cross_attention`, and only then. Received: "
                f"context of shape {shape}, cross_attention={self.cross_attention}."
            )

    def get_config(self):
        unbuilt = registry.copy(self.residual)
        return {**super().get_config(), "residual": registry.serialize(unbuilt)}


@registry.register
class ParallelBlock(TransformerBlock):
    """Add the outputs of attention and of a feed-forward network that read the same input.

        y = x + Attention(norm(x)) + FFN(norm(x)),      one norm for both
        y = x + Attention(norm_1(x)) + FFN(norm_2(x)),  with `shared_norm=False`

    The sublayers do not wait for each other, so an accelerator may compute them at once. With
    another residual R, y = R_2(R_1(x, Attention), FFN), where both sublayers read x. Cost: that of
    a `TransformerBlock`, without one norm if it is shared.

    Use it for large decoders; GPT-J, PaLM and Falcon-7B have one norm, GPT-NeoX and Falcon-40B two.

    Args:
        attention, feed_forward, dropout: as `TransformerBlock`.
        residual: name or object of the residual axis.
        shared_norm: bool. If True, one residual, with its norm, serves both sublayers; else each
            has a copy of its own.

    Call arguments and returns:
        As `keras_attn.layers.Block`, without a context.

    Raises:
        ValueError: as `TransformerBlock`, and if `cross_attention` is given.

    Example:
        >>> import keras
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, ParallelBlock
        >>> block = ParallelBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> block(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none.

    Reference: [Chowdhery et al., 2022](https://arxiv.org/abs/2204.02311), section 2; two norms:
        [Black et al., 2022](https://arxiv.org/abs/2204.06745), section 2.1.
    """

    decided_arguments = ("cross_attention",)

    def __init__(self, attention, feed_forward, *, residual="pre_norm", shared_norm=True, **kwargs):
        if kwargs.get("cross_attention") is not None:
            raise ValueError(
                "`cross_attention` does not fit a `ParallelBlock`; use a `TransformerBlock`, which "
                f"has it. Received: cross_attention={kwargs['cross_attention']!r}."
            )
        self.shared_norm = bool(shared_norm)  # read while the base class makes the residuals
        super().__init__(attention, feed_forward, residual=residual, **kwargs)

    def _residual_of(self, sublayer, residual):
        if self.shared_norm and sublayer == "feed_forward":
            return self.attention_residual
        return super()._residual_of(sublayer, residual)

    def apply(self, x, call):
        x = carry_mask(x, call, self.attention_residual)
        steps, extras = self.sublayers(x, call)
        (first, attend), (second, feed_forward) = steps
        read = first.before(x)
        y = keep_rows(first.after(x, attend(read, call.context)))
        read = read if second is first else second.before(x)
        return keep_rows(second.after(y, feed_forward(read, call.context))), extras


def _check_sublayer(name, layer):
    """Raise a `ValueError` if a sublayer does not take the arguments by which a block calls it."""
    missing = missing_arguments(layer, _ATTENTION_ARGUMENTS)
    if name == "feed_forward" and missing == []:
        raise ValueError(
            "`feed_forward` must be a layer that is called with `(x)`, not an attention layer; "
            f"the order is `TransformerBlock(attention, feed_forward)`. Received: {name}={layer!r}."
        )
    if name != "feed_forward" and missing:
        raise ValueError(
            f"`{name}` must be a `keras_attn.layers.MultiHeadAttention`, or a layer with its call "
            f"arguments, of which {', '.join(missing)} are missing; the order is "
            f"`TransformerBlock(attention, feed_forward)`. Received: {name}={layer!r}."
        )


def _of_pairs(call):
    """Return the arguments of a call that say which query may attend to which key."""
    names = "attention_mask", "query_positions", "key_positions"
    arguments = {name: getattr(call, name) for name in names}
    # An attention layer of one's own need not know packed rows.
    return arguments if call.segment_ids is None else {**arguments, "segment_ids": call.segment_ids}
