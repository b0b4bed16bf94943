"""The contract between depths and blocks: one object with the arguments of a call."""

import dataclasses
import inspect

import keras
from keras import ops

from keras_attn.attention.inputs import keras_mask
from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.norms import BatchNorm
from keras_attn.registry import MaskedLayer


@dataclasses.dataclass(frozen=True)
class CallContext:
    """Call arguments of a `Block` beside its input, passed on from depths to sublayers."""

    context: object = None
    padding_mask: object = None
    context_padding_mask: object = None
    attention_mask: object = None
    segment_ids: object = None
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
        masks = {}
        if self.padding_mask is None and self.cache is None:
            masks["padding_mask"] = keras_mask(x)
        if self.context_padding_mask is None:
            masks["context_padding_mask"] = keras_mask(self.context)
        return self.replace(**masks)


def carry_mask(x, call, residual):
    """Return x with the padding mask of a call, for a residual whose norm reads Keras's mask.

    Recomputation and masks given by name leave x without one. With a cache the mask is that of its
    slots, and the norm reads its averages.
    """
    reads_mask = isinstance(residual.norm, BatchNorm) and call.cache is None
    if not reads_mask or call.padding_mask is None or keras_mask(x) is not None:
        return x
    x = ops.copy(x)  # the caller's tensor stays as it is
    set_keras_mask(x, call.padding_mask)
    return x


def takes_call_context(call):
    """Give a layer's `call` the fields of `CallContext` as arguments, in place of `**arguments`.

    Keras reads the signature: a `**arguments` gets no `training` and may not mix tensors with other
    values. Each layer names the arguments of its memory itself.
    """
    signature = inspect.signature(call)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    shared = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        for field in dataclasses.fields(CallContext)
        if field.name not in ("context", "memory", "memory_mask")
    ]
    call.__signature__ = signature.replace(parameters=[*own, *shared])
    return call


class Block(MaskedLayer):
    """Base class of what a depth repeats: a layer from (B, T, D) to (B, T, D).

    A subclass defines `apply`, by which layers call each other; users call the layer itself.

    Attributes:
        attention, cross_attention, feed_forward: the sublayers, whose states a cache keeps; None
            where there is none. A block without `attention` cannot decode with a cache.
        needs_closing_norm: True if the block leaves its output unnormalised, so a stack adds a
            final norm.

    Call arguments:
        x: (B, T, D).
        context: (B, S, D), for cross-attention.
        padding_mask: bool (B, T), True where a position is real; by default Keras's mask of `x`.
        context_padding_mask: bool (B, S); by default Keras's mask of `context`.
        attention_mask, segment_ids, query_positions, key_positions: passed to the self-attention.
        context_attention_mask: passed to the cross-attention, broadcastable to (B, N, T, S).
        memory: (B, M, D), the block's inputs before `x`: more keys for the self-attention, which
            the residual normalises as it does `x`. Masks and positions of keys are then those of
            M + T keys. For a `KNNAttention` keys and values, (B, N, M, H + Hv).
        memory_mask: bool (B, M), True where a slot of the memory is filled; by default everywhere.
        cache: dict with the caches of `attention`, for cross-attention `cross_attention`, and of a
            `feed_forward` that mixes positions.
        return_attention_scores: bool.

    Returns:
        (B, T, D); then, if asked for, a dict of each attention's scores; then, with `cache`, the
        new cache.
    """

    needs_closing_norm = False
    # True if `apply` with a cache also takes one position of each row, (B, D).
    takes_rows = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        # Not attributes of the class, which would hide the layers of these names on torch.
        for name in ("attention", "feed_forward", "cross_attention"):
            if not hasattr(type(self), name):
                setattr(self, name, None)

    @property
    def retrieves(self):
        """True if the self-attention looks keys up in a memory of its own, as `KNNAttention`."""
        return getattr(self.attention, "retrieves", False)

    def apply(self, x, call):
        """Compute the block for a `CallContext`, whose masks are complete.

        Returns:
            The output; and a dict of what else the call asks for: `scores`, then `cache`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `apply`.")

    @takes_call_context
    def call(self, x, context=None, *, memory=None, memory_mask=None, **arguments):
        call = CallContext(context, memory=memory, memory_mask=memory_mask, **arguments)
        x, extras = self.apply(x, call.with_keras_masks(x))
        return (x, *extras.values()) if extras else x

    def compute_output_spec(self, x, context=None, **kwargs):
        if kwargs.get("cache") is not None or kwargs.get("return_attention_scores"):
            return super().compute_output_spec(x, context, **kwargs)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)


def missing_arguments(layer, names):
    """Return the names, sorted, that a layer's call does not take; None if it takes any."""
    taken = inspect.signature(layer.call).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        return None
    return sorted({*names} - taken.keys())


def check_cross_attention(name, attention):
    """Refuse attention to another sequence that depends on distances between positions."""
    score, pattern = (getattr(attention, axis, None) for axis in ("score", "pattern"))
    received = {
        "score": score if getattr(score, "uses_positions", False) else None,
        "position": getattr(attention, "position", None),
        "pattern": None if getattr(pattern, "simple_rule", "full") == "full" else pattern,
    }
    for axis, value in received.items():
        if value is not None:
            raise ValueError(
                f"`{name}` attends to another sequence, and positions of two sequences have no "
                "distance: give it a score of contents alone, such as `DotProduct()`, the pattern "
                f'"dense" and no position. Received: {axis}={value!r}.'
            )
