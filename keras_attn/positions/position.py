"""Base class of the position axis."""

import keras

from keras_attn.registry import ArgumentRepr


class Position(ArgumentRepr, keras.layers.Layer):
    """A layer that adds positions to embeddings, or applies them to heads.

        (x (B, T, D), positions) -> (B, T, D),   positions int (T,) or (B, T), by default 0 .. T-1

    A position of one's own overrides `call(x, positions=None)`. One with `acts_on_heads` also takes
    heads (B, N, T, H), and attention layers apply it to queries and keys.
    """

    # True if the position takes queries and keys (B, N, T, H) too.
    acts_on_heads = False
    # True if `call` takes `step`, the number of times that a shared block has run.
    counts_steps = False
    # Number of positions that the layer tells apart; None for any number.
    max_length = None

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, x_shape, positions_shape=None):
        return x_shape
