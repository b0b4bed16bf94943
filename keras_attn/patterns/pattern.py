"""Base class of the pattern axis."""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from keras_attn.attention.inputs import positions_tensor
from keras_attn.attention.plans import Chunked
from keras_attn.registry import Value, resolve

# What makes the pattern of each name; `keras_attn.patterns` adds them.
NAMES = {}
# The functions `p & q` and `p | q`, which `keras_attn.patterns.combined` adds.
COMBINATIONS = {}


class KeptKeys(NamedTuple):
    """The keys that a cache keeps for later queries, and the cached keys that one query reads.

    Attributes:
        size: int. Number of keys that a cache must keep: the first `sinks` and the last ones. None
            for all keys.
        sinks: int. Number of first keys among them.
        positions: function of the position of one query, an int32 scalar, and of the number of
            keys, whose positions are 0 .. num_keys - 1. It returns the positions of at least the
            keys that the query may attend to, int32 (keys,) of a fixed length, in any order and
            each once; values outside 0 .. num_keys - 1 are ignored. None, or a result of None, for
            all keys.
    """

    size: int | None = None
    sinks: int = 0
    positions: Callable | None = None


class Pattern(Value):
    """The keys that a query may attend to, as a function of integer positions.

        allowed(i, j) -> bool,   i query position, j key position

    Since positions are data, the same function serves full sequences, memories, caches and packed
    rows. A pattern of one's own needs only `mask_mod`, which defines `allowed`. It may also have a
    `plan` of the same rule, a way to compute attention that leaves out the other pairs: a
    `functools.cached_property` that returns `Window`, `BlockLocal` or another of
    `keras_attn.attention.plans`. A layer with `implementation="auto"` uses it from 512 keys on
    where its `keys_per_query` are few. Patterns combine: `p & q` allows the pairs that both allow,
    `p | q` those that either does; `&` narrows a pattern and keeps its plan. A pattern is saved
    with the layer that holds it.

    Attributes:
        causal: True if no query attends to a key after its own position.
        is_of_positions: True if positions decide alone: no weights, and no use of the queries and
            keys themselves.
        is_random: True if the pattern takes random numbers, new ones in each training step, from
            `inputs.seed`.
        simple_rule: "full" if all pairs are allowed, "causal" if j <= i is the whole rule, None for
            other rules.
        kept_keys: `KeptKeys`, for caches; by default all keys.

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
    is_random = False
    simple_rule = None
    kept_keys = KeptKeys()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__[1:]:
            has_rule = issubclass(base, Pattern) and (
                base.mask_mod is not Pattern.mask_mod or base.allowed is not Pattern.allowed
            )
            if has_rule:
                raise TypeError(
                    f"`{cls.__name__}` must be a subclass of `Pattern` itself, or a combination "
                    f"such as `{base.__name__}(...) & pattern`: the plan of {base.__name__} is for "
                    f"its own rule alone. Received: a subclass of {base.__name__}."
                )
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
        return self.mask_mod(ops.expand_dims(i, -1), ops.expand_dims(j, -2))

    def dense_mask_and_bias(self, inputs):
        """Return a mask (1 or B, 1 or N, T, S), and a bias or None, of the matrix of logits.

        The mask is None if all pairs are allowed.
        """
        if self.simple_rule == "full":
            return None, None
        allowed = self.allowed(inputs.query_positions, inputs.key_positions)
        is_pair_matrix = len(allowed.shape) == 2
        return ops.expand_dims(allowed, (0, 1) if is_pair_matrix else 1), None

    @functools.cached_property
    def plan(self):
        """The `Plan` by which attention is computed blockwise."""
        return Chunked(self.mask_mod)

    def keys_per_query(self, num_keys):
        """Return how many of `num_keys` keys the plan computes for a query: its cost."""
        return self.plan.keys_per_query(num_keys)

    def for_call(self, inputs, layer_input, position):
        """Return the pattern of one call: this one, or a copy bound to tensors of the call.

        Args:
            inputs: `AttentionInputs`.
            layer_input: (B, T, D), the `query` argument of the layer.
            position: of heads, which the layer has applied to `inputs`; None if there is none.
        """
        return self

    def check(self, score=None, length=None):
        """Refuse a score, or a length of a sequence, for which the pattern is not defined."""

    def __and__(self, other):
        return COMBINATIONS["and"](self, get_pattern(other, "second"))

    def __or__(self, other):
        return COMBINATIONS["or"](self, get_pattern(other, "second"))

    def __rand__(self, other):
        return COMBINATIONS["and"](get_pattern(other, "first"), self)

    def __ror__(self, other):
        return COMBINATIONS["or"](get_pattern(other, "first"), self)


def get_pattern(identifier, argument="pattern"):
    """Return the pattern for a name, a config or an object, the value of an `argument`."""
    return resolve(identifier, NAMES, "pattern", Pattern, argument)
