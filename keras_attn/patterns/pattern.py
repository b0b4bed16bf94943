"""Base class of the pattern axis."""

import inspect

from keras import ops

from keras_attn.attention.chunked import attend_chunked, chunked_tiles
from keras_attn.attention.inputs import positions_tensor
from keras_attn.ops.shapes import UNKNOWN_LENGTH
from keras_attn.registry import Value, resolve

# Attributes that describe one `mask_mod`: a class that overrides it does not inherit them.
_OF_MASK_MOD = {
    "allowed",
    "attend",
    "attend_blockwise",
    "cache_sinks",
    "cache_size",
    "causal",
    "check_length",
    "decode_keys",
    "dense_mask_and_bias",
    "extra_products",
    "keys_per_query",
    "mask",
    "prefers_blockwise",
    "simple_rule",
    "supports_segments",
    "tiles",
}


class Pattern(Value):
    """The keys that a query may attend to, as a function of integer positions.

        allowed(i, j) -> bool,   i query position, j key position

    Since positions are data, the same function serves full sequences, memories, caches and packed
    rows. A pattern of one's own needs only `mask_mod`, which defines `allowed`. `attend` is the
    plan, overridden by patterns that know how to leave out the other pairs. Patterns combine:
    `p & q` allows the pairs that both allow, `p | q` those that either does. A pattern is saved
    with the layer that holds it.

    A subclass of another pattern that overrides `mask_mod` inherits no plan: unless it defines
    them, `attend`, `check_length`, the methods of costs and caches, `causal`, `cache_sinks`,
    `simple_rule` and `supports_segments` are those of this class. An argument `causal` of the other
    pattern stays. `&` narrows a pattern and keeps its plan.

    Attributes:
        causal: True if no query attends to a key after its own position.
        is_of_positions: True if positions decide alone: no weights, and no use of the queries and
            keys themselves.
        differs_by_head: True if each head has its own pattern.
        is_random: True if the pattern takes random numbers, new ones in each training step, from
            `inputs.seed`.
        cache_sinks: number of first keys that a cache keeps besides the last ones.
        simple_rule: "full" if all pairs are allowed, "causal" if j <= i is the whole rule, None for
            other rules.
        supports_segments: True if `attend` keeps the documents of a packed row apart, each with
            positions of its own. Others are then computed from all pairs, tile by tile.

    Example:
        >>> from keras import ops
        >>> from keras_attn.patterns import Causal
        >>> ops.convert_to_numpy(Causal().allowed(ops.arange(2), ops.arange(3))).astype(int)
        array([[1, 0, 0],
               [1, 1, 0]])

    Reference: attention patterns as index sets:
        [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.2.
    """

    causal = False
    is_of_positions = True
    differs_by_head = False
    is_random = False
    cache_sinks = 0
    simple_rule = None
    supports_segments = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "mask_mod" in vars(cls):
            cls._inherit_no_plan()
        signature = inspect.signature(cls.mask_mod)
        is_static = isinstance(inspect.getattr_static(cls, "mask_mod"), staticmethod)
        try:
            signature.bind(*("ij" if is_static else ("self", "i", "j")))
        except TypeError as error:
            raise TypeError(
                f"`{cls.__name__}.mask_mod` must be `mask_mod(self, i, j)`, with the positions of "
                "a query and a key; for a rule of each head use `PerHead`. "
                f"Received: mask_mod{signature}."
            ) from error

    @classmethod
    def _inherit_no_plan(cls):
        """Reset the attributes that describe the `mask_mod` which this class overrides."""
        bases = cls.__mro__[1:]
        owner = next(base for base in bases if "mask_mod" in vars(base))
        if owner is Pattern:
            return
        mixins = [base for base in bases[: bases.index(owner)] if not issubclass(base, owner)]
        own = {name for base in (cls, *mixins) for name in vars(base)}
        for name in _OF_MASK_MOD - own:
            setattr(cls, name, getattr(Pattern, name))

    def mask_mod(self, i, j):
        """Return True where a query at i may attend to a key at j; int tensors broadcast."""
        raise TypeError(f"{type(self).__name__} must define `mask_mod(i, j)`.")

    def allowed(self, query_positions, key_positions):
        """Return a bool (..., T, S) for positions (T,) or (B, T) and (S,) or (B, S)."""
        i, j = positions_tensor(query_positions), positions_tensor(key_positions)
        for name, positions in {"query_positions": i, "key_positions": j}.items():
            if len(positions.shape) == 0:
                raise ValueError(
                    f"`{name}` must be of shape (T,) or (B, T); `mask_mod` takes single "
                    f"positions. Received: {name}={positions}."
                )
        return self.mask_mod(i[..., :, None], j[..., None, :])

    def mask(self, query_positions, key_positions):
        """Return `allowed` with a head axis, (1 or B, 1, T, S); None if everything is allowed."""
        if self.simple_rule == "full":
            return None
        allowed = self.allowed(query_positions, key_positions)
        return allowed[None, None] if len(allowed.shape) == 2 else ops.expand_dims(allowed, 1)

    def dense_mask_and_bias(self, inputs):
        """Return the mask, as `mask` does, and a bias or None for the whole matrix of logits."""
        if not inputs.query_segments:  # the limit is that of a document
            self.check_length(inputs.query.shape[2])
            if inputs.slot_mask is None:  # a cache may have more slots than keys
                self.check_length(inputs.key.shape[2])
        return self.mask(inputs.query_positions, inputs.key_positions), None

    def attend(self, inputs, log_weight=False):
        """Compute attention over the allowed pairs of consecutive positions.

        Returns:
            Output (B, N, T, Hv), and with `log_weight` the log weight (B, N, T, 1) for
            `merge_by_logsumexp`, else None.
        """
        return attend_chunked(inputs, self.mask_mod, log_weight=log_weight)

    def attend_blockwise(self, inputs, log_weight=False):
        """Compute `attend`; for packed rows that it cannot keep apart, attend to all pairs."""
        if not inputs.query_segments:
            self.check_length(inputs.key.shape[2])
            return self.attend(inputs, log_weight)
        inputs = inputs.in_row()
        if self.supports_segments:
            return self.attend(inputs, log_weight)
        return Pattern.attend(self, inputs, log_weight)

    def build_for(self, query_shape, input_shape):
        """Create weights for per-head queries (B, N, T, H) made from inputs (B, T, D)."""

    def check_length(self, length):
        """Refuse a sequence longer than the pattern is defined for; None if it is not known."""

    def check_score(self, score):
        """Refuse a score that the pattern cannot be computed with."""

    def keys_per_query(self, num_keys):
        """Return how many of `num_keys` keys `attend` computes for a query: its cost."""
        return num_keys

    def tiles(self, inputs):
        """Return the `TileCount`s of what `attend` computes for symbolic `AttentionInputs`."""
        return chunked_tiles(inputs)

    def extra_products(self, inputs):
        """Return the multiply-adds of `attend` and of its gradient that are outside of tiles."""
        return 0, 0

    def prefers_blockwise(self, length, num_keys, short=512, long=2048):
        """Return True if `attend` is expected to be faster than the whole matrix of scores.

        A plan that leaves out half of the keys pays from `short` keys on, one that leaves out none
        from `long` queries and keys on. `length` or `num_keys` may be None, for any number.
        """
        computed = self.keys_per_query(num_keys or UNKNOWN_LENGTH)
        if num_keys is None:
            return computed < UNKNOWN_LENGTH
        if num_keys < short:
            return False
        return 2 * computed <= num_keys or (length or 0) * num_keys >= long * long

    def cache_size(self):
        """Return the number of keys that a cache must keep for later queries; None for all.

        They are the first `cache_sinks` and the last ones.
        """
        return None

    def decode_keys(self, position, num_keys):
        """Return positions of at least the keys that one query may attend to, for reading a cache.

        Args:
            position: int32 scalar, of the query.
            num_keys: int or int32 scalar. Keys have positions 0 .. num_keys - 1.

        Returns:
            int32 (keys,), in any order and each once; integers outside 0 .. num_keys - 1 are
            fillers. None for all keys.
        """
        return None

    @staticmethod
    def get(identifier, argument="pattern"):
        """Return the pattern for a name, a config or an object, the value of an `argument`."""
        return resolve(identifier, Pattern.names, "pattern", Pattern, argument)

    def __and__(self, other):
        other = self.get(other, "second")
        # A pattern by head combines the other with each of its own: Python asks its `__rand__`.
        return NotImplemented if other.differs_by_head else self.combinations["and"](self, other)

    def __or__(self, other):
        other = self.get(other, "second")
        return NotImplemented if other.differs_by_head else self.combinations["or"](self, other)

    def __rand__(self, other):
        return self.get(other, "first") & self

    def __ror__(self, other):
        return self.get(other, "first") | self

    # What makes the pattern of each name, and the classes of `p & q` and `p | q`: the modules of
    # `keras_attn.patterns` add them.
    names, combinations = {}, {}
