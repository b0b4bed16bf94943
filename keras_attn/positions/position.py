"""Base class of the position axis."""

from keras import ops

from keras_attn.ops.checks import check_positions, check_shape
from keras_attn.ops.shapes import size
from keras_attn.registry import MaskedLayer


class Position(MaskedLayer):
    """A layer that adds positions to embeddings, or applies them to heads.

    A position of one's own overrides `call(x, positions=None)`.

    Attributes:
        acts_on_heads: True if the position takes heads (B, N, T, H) too: attention applies it to
            queries and keys.
        counts_steps: True if `call` takes `step`, the number of times that a shared block has run.
        max_length: int. Number of positions that the layer tells apart; None for any number.

    Call arguments:
        x: (B, T, D).
        positions: optional int (T,) or (B, T), in tokens; by default 0 .. T-1.

    Returns:
        (B, T, D).
    """

    depends_on_config_only = True
    acts_on_heads = False
    counts_steps = False
    max_length = None

    def _positions_of(self, x, positions):
        """Return the positions of heads or rows x (B, ..., T, H), by default 0 .. T-1."""
        check_shape(x, "x", (None,) * 3, (None,) * 4)
        if positions is None:
            positions = ops.arange(size(x, -2), dtype="int32")
        return check_positions(positions, "positions", x.shape[0], x.shape[-2])

    def _add(self, x, vectors):
        """Return `x` (B, T, D) plus the vectors (T, D) or (B, T, D) of its positions."""
        # Not by Keras's `add`, which takes the vectors of no position for a bias, and fails.
        return ops.cast(x, self.compute_dtype) + ops.cast(vectors, self.compute_dtype)

    def move(self, x, distances):
        """Return heads x (B, N, T, H), which have their positions, at others.

        `distances`, int32 (B or 1, N or 1, T), are added to the positions.
        """
        raise ValueError(
            "The pattern Sinks needs a position of heads that can be moved, such as `Rotary`. "
            f"Received: position={self!r}."
        )

    def compute_output_shape(self, x_shape, positions_shape=None):
        return x_shape
