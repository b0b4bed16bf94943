"""The padding mask of texts with padding at the end only."""

from keras import ops

from keras_attn import registry


def fill(mask):
    """Return a padding mask (B, T) that is True up to the last True; None stays None."""
    if mask is None:
        return None
    following = ops.flip(ops.cumsum(ops.cast(ops.flip(mask, axis=1), "int32"), axis=1), axis=1)
    return following > 0


def last_of(mask):
    """Return a mask (B, T) of the last token, or of the first position of a row of padding.

    `mask` is one that `fill` returned.
    """
    count = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    return ops.arange(ops.shape(mask)[1], dtype="int32") == ops.maximum(count - 1, 0)


@registry.register
class EndIsPadding(registry.MaskedLayer):
    """Return the embeddings (B, T, D) of tokens with a mask that is True up to the last real token.

    Many causal models have no id of padding of their own and use one that texts may have too, such
    as that of the last token.
    """

    def call(self, x):
        return ops.copy(x)  # Keras leaves the mask of a tensor that is returned itself.

    def compute_mask(self, x, previous_mask=None):
        return fill(previous_mask)

    def compute_output_shape(self, x_shape):
        return x_shape
