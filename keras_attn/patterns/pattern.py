"""What every pattern is."""

from keras import ops

from keras_attn.attention.chunked import rows
from keras_attn.attention.positions import positions_tensor
from keras_attn.ops.shapes import UNKNOWN_LENGTH
from keras_attn.registry import Value

# Where a plan pays: from so many keys on if it leaves out half of them, from so many queries and
# keys on if it leaves out none.
SHORT, LONG = 512, 2048


class Pattern(Value):
    """Which keys a query may meet, as a function of integer positions.

        allowed(i, j) -> bool,   i query position, j key position

    Since positions are data, the same function serves full sequences, memories, caches and packed
    rows. A pattern has two faces. `allowed` is the truth; a pattern of one's own needs only
    `mask_mod`, from which it follows. `attend` is the plan: a way to compute attention over the
    allowed pairs, which a pattern overrides where it knows one that leaves out the others. Patterns
    combine: `p & q` allows what both allow, `p | q` what either does. A pattern is saved with the
    layer that holds it.

    Example:
        >>> from keras import ops
        >>> from keras_attn.patterns import Causal
        >>> ops.convert_to_numpy(Causal().allowed(ops.arange(2), ops.arange(3))).astype(int)
        array([[1, 0, 0],
               [1, 1, 0]])

    Reference: attention patterns as index sets:
        [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.2.
    """

    # Whether no query meets a key after its own position.
    causal = False
    # Whether `mask_mod` says it all: no weights, no look at the queries and keys themselves.
    is_of_positions = True
    # Whether it takes random numbers, fresh ones in each step of training, from `operands.seed`.
    is_random = False

    def mask_mod(self, i, j):
        """Whether a query at position i may meet a key at j, for int tensors that broadcast."""
        raise TypeError(f"{type(self).__name__} must define `mask_mod(i, j)`.")

    def allowed(self, query_positions, key_positions):
        """Bool (..., T, S) for positions (T,) or (B, T) and (S,) or (B, S)."""
        i, j = (positions_tensor(positions) for positions in (query_positions, key_positions))
        return self.mask_mod(i[..., :, None], j[..., None, :])

    def mask(self, query_positions, key_positions):
        """`allowed` with a head axis, (1 or B, 1, T, S); None where everything is allowed."""
        allowed = self.allowed(query_positions, key_positions)
        return allowed[None, None] if len(allowed.shape) == 2 else ops.expand_dims(allowed, 1)

    def matrix(self, operands):
        """What the full matrix of logits needs: a mask as `mask` gives it, and a bias or None."""
        return self.mask(operands.query_positions, operands.key_positions), None

    def attend(self, operands, log_weight=False):
        """Attention over the allowed pairs of consecutive positions.

        Args:
            operands: `keras_attn.attention.inputs.AttentionInputs`.
            log_weight: bool. Whether to give the log weight too.

        Returns:
            Output (B, N, T, Hv), and log weight (B, N, T, 1) for `keras_attn.attention.softmax` or None.
        """
        return rows(operands, self.mask_mod, log_weight=log_weight)

    def check_score(self, score):
        """Refuses a score that the pattern cannot be computed with."""

    def keys_per_query(self, num_keys):
        """How many of `num_keys` keys `attend` computes for a query: its cost."""
        return num_keys

    def prefers_blockwise(self, length, num_keys):
        """Whether `attend` is thought to be faster than a matrix of scores, for ints or None."""
        computed = self.keys_per_query(num_keys or UNKNOWN_LENGTH)
        if num_keys is None:
            return computed < UNKNOWN_LENGTH
        if num_keys < SHORT:
            return False
        return 2 * computed <= num_keys or (length or 0) * num_keys >= LONG * LONG

    def cache_size(self):
        """How many of the last keys a query after them may meet; None for all.

        A cache of so many slots serves decoding.
        """
        return None

    def decode_keys(self, position, num_keys):
        """Among which keys a query finds all that it may meet, so that a cache need not read others.

        Args:
            position: int32 scalar, of the query.
            num_keys: int or int32 scalar. Keys stand at 0 .. num_keys - 1.

        Returns:
            Their positions, int32 (keys,), in any order and each once; other integers below 0 or
            from `num_keys` on fill up. None for all keys.
        """
        return None

    @staticmethod
    def check(**patterns):
        """Raises a `ValueError` that names the argument unless each value is a pattern."""
        for name, pattern in patterns.items():
            if not isinstance(pattern, Pattern):
                raise ValueError(f"`{name}` must be a pattern. Received: {name}={pattern!r}.")

    def __and__(self, other):
        from keras_attn.patterns.both import Both
        from keras_attn.patterns.per_head import PerHead

        return other & self if isinstance(other, PerHead) else Both(self, other)

    def __or__(self, other):
        from keras_attn.patterns.either import Either
        from keras_attn.patterns.per_head import PerHead

        return other | self if isinstance(other, PerHead) else Either(self, other)
