"""The padding mask of targets, whose first token may be the id of padding."""

from keras import ops

from keras_attn import registry


def first_is_real(mask):
    """Return a padding mask (B, T) that is True at the first position; None stays None."""
    if mask is None:
        return None
    return ops.concatenate([ops.ones_like(mask[:, :1]), mask[:, 1:]], axis=1)


@registry.register
class StartIsReal(registry.MaskedLayer):
    """Return the embeddings (B, T, D) of targets with a mask that is True at the first position.

    T5 and Marian start their targets with the id of padding.
    """

    def call(self, x):
        return ops.copy(x)  # Keras leaves the mask of a tensor that is returned itself.

    def compute_mask(self, x, previous_mask=None):
        return first_is_real(previous_mask)

    def compute_output_shape(self, x_shape):
        return x_shape
