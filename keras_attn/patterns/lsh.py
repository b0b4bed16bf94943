"""Attention among positions of the same hash."""

import numbers

from keras import ops

from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.lsh import (
    attend_lsh,
    chunk_numbers,
    default_buckets,
    hash_directions,
    hash_products,
    lsh_tiles,
    meet,
    sort_by_bucket,
)
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import size, sizes, slice_axis
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register

# The logit of a query's own key: more than none at all, less than any other.
LAST_RESORT = -1e20
# The bucket of padding, after all others.
PADDING = 2**28


@register
class LSH(Pattern):
    """A query attends to the keys that hash as it does, as Reformer's queries do.

        allowed(i, j) = in any round: bucket(i) = bucket(j), chunk(j) in {chunk(i) - 1, chunk(i)},
                        and j < i, or j != i without `causal`;  j = i if there is no other

    In each round random axes give every key a bucket. Positions are sorted by bucket, equal ones
    in their order, and cut into chunks. A key that is met in several rounds counts once, so with
    more rounds the result approaches full attention. Needs a score whose queries are their own
    keys: "shared_qk". Time O(num_rounds T (chunk_length + log T)) and memory O(num_rounds T) per
    head.

    In training, rounds draw new axes in every step where the layer passes random numbers to its
    pattern; otherwise the axes stay the same. A query never gets a value from its future, but
    sorting looks at all keys, so which keys of its past it attends to may depend on later ones.
    Decoding with a cache, whose queries are fewer than its keys, attends to all of the past. In
    packed rows each document is sorted by itself, among the buckets of the whole row: with
    `num_buckets` it gets what it gets alone.

    Use it for very long sequences in which content, not distance, decides which keys matter.

    Args:
        chunk_length: int.
        num_rounds: int. May differ between training and evaluation.
        num_buckets: even int; by default two for each chunk, padded ones too, so that outputs
            depend on the length to which a batch is padded. Above 128 they are pairs of two hashes,
            at least so many.
        causal: bool.
        across_buckets: bool. If True, a query attends to all keys of both chunks, whatever
            their bucket: at no more time a better approximation of full attention.
        wrap: bool. If True, the first chunk of each round looks back at the last one of the round
            before, and keys met in several rounds count several times: for weights trained by Trax,
            Hugging Face or reformer-pytorch, with `across_buckets`.
        seed: int. Of the axes if the layer gives no random numbers.

    Raises:
        ValueError: if a size is below 1, `num_buckets` is not even, `wrap` comes without
            `across_buckets`, the score does not share queries and keys, or there are more keys than
            queries.

    Example:
        >>> from keras_attn import layers, patterns
        >>> pattern = patterns.LSH(64, num_rounds=2)
        >>> layer = layers.MultiHeadAttention(8, 64, score="shared_qk", pattern=pattern)

    Differs from the paper: a query without another key attends to itself exactly, where the paper
        has a constant of -1e5; padding has a bucket of its own. The released implementations attend
        to keys `across_buckets`, against the paper's eq. 4.

    Reference: [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451), section 2, eq. 2 to 6, and
        appendix A.
    """

    is_of_positions = False
    is_random = True
    supports_segments = True

    def __init__(
        self,
        chunk_length=64,
        num_rounds=1,
        num_buckets=None,
        causal=True,
        *,
        across_buckets=False,
        wrap=False,
        seed=0,
    ):
        check_sizes(chunk_length=chunk_length, num_rounds=num_rounds)
        check_sizes(least=0, seed=seed)
        if num_buckets is not None and (
            not isinstance(num_buckets, numbers.Integral) or num_buckets < 2 or num_buckets % 2
        ):
            raise ValueError(
                "`num_buckets` must be an even integer of at least 2, or None. "
                f"Received: num_buckets={num_buckets!r}."
            )
        if wrap and not across_buckets:
            raise ValueError(
                "`wrap` needs `across_buckets=True`: keys of other rounds share no bucket. "
                f"Received: wrap={wrap!r}, across_buckets={across_buckets!r}."
            )
        self.chunk_length = int(chunk_length)
        self.num_rounds = int(num_rounds)
        self.num_buckets = None if num_buckets is None else int(num_buckets)
        self.causal = bool(causal)
        self.across_buckets = bool(across_buckets)
        self.wrap = bool(wrap)
        self.seed = int(seed)

    def mask_mod(self, i, j):
        # The buckets allow fewer pairs than positions.
        return j <= i if self.causal else ops.ones_like(i - j, dtype="bool")

    def check_score(self, score):
        if not score.shares_query:
            raise ValueError(
                "The pattern LSH needs a score whose queries are their own keys, like "
                f"'shared_qk': others may be high where hashes differ. Received: score={score!r}."
            )

    def buckets(self, inputs):
        """Return the bucket of each key in each round, int32 (B, N, rounds, S)."""
        num_buckets = self.num_buckets
        if num_buckets is None:
            num_buckets = default_buckets(size(inputs.key, 2), self.chunk_length)
        seed = self.seed if inputs.seed is None else inputs.fold_in(self.num_rounds + 1).seed
        buckets = hash_directions(inputs.key, num_buckets, self.num_rounds, seed)
        if inputs.key_mask is None:
            return buckets
        return ops.where(inputs.real_keys()[:, :, None], buckets, PADDING)

    def dense_mask_and_bias(self, inputs):
        self._check_inputs(inputs)
        mask = self.mask(inputs.query_positions, inputs.key_positions)
        i, j = positions_by_head(inputs.query_positions), positions_by_head(inputs.key_positions)
        bias = ops.where(i[..., None] == j[..., None, :], LAST_RESORT, 0.0)
        known = inputs.query.shape[2], inputs.key.shape[2]
        if None not in known and known[0] != known[1]:
            return mask, bias
        counts = self._counts(inputs)
        if None in known:
            length, num_keys = size(inputs.query, 2), size(inputs.key, 2)
            counts = slice_axis(counts, num_keys - length, length, axis=2)
            counts = ops.where(length == num_keys, counts, 1)
        if self.wrap:
            bias = bias + ops.log(ops.cast(ops.maximum(counts, 1), "float32"))
        return ops.logical_and(mask, counts > 0), bias

    def attend(self, inputs, log_weight=False):
        self._check_inputs(inputs)
        length, num_keys = inputs.query.shape[2], inputs.key.shape[2]
        if length != num_keys:
            raise ValueError(
                "The plan of LSH is for queries that are their own keys, as many as keys. "
                f"Received: {length} queries, {num_keys} keys."
            )
        rules = {"causal": self.causal, "across_buckets": self.across_buckets, "wrap": self.wrap}
        found = attend_lsh(inputs, self.buckets(inputs), self.chunk_length, **rules)
        output, log_weights = _or_own(inputs, self.num_rounds, *found)
        return output, log_weights if log_weight else None

    def tiles(self, inputs):
        return lsh_tiles(inputs, self.num_rounds, self.chunk_length, self.wrap)

    def extra_products(self, inputs):
        buckets = self.num_buckets or default_buckets(inputs.key.shape[2], self.chunk_length)
        return hash_products(inputs, buckets, self.num_rounds), 0

    def keys_per_query(self, num_keys):
        return min(num_keys, 2 * self.chunk_length * self.num_rounds)

    def _check_inputs(self, inputs):
        self.check_score(inputs.score)
        if self.wrap and inputs.query_segments:
            raise ValueError(
                "`wrap` does not fit packed rows, where it would join the ends of two documents. "
                f"Received: segment_ids, wrap={self.wrap!r}."
            )

    def _counts(self, inputs):
        """Count the rounds in which each pair (B, N, S, S) meets, if positions allow it."""
        buckets = self.buckets(inputs)
        _, _, ranks = sort_by_bucket(inputs, buckets)
        rounds = chunk_numbers(ranks, buckets, self.chunk_length, self.across_buckets)
        counts = 0
        for number in range(self.num_rounds):
            own = rounds[:, :, number]
            i, j = own[..., :, None], own[..., None, :]
            counts = counts + ops.cast(meet(i, j), "int32")
            if self.wrap:
                j = rounds[:, :, number - 1][..., None, :]
                last = ops.max(j, axis=-1, keepdims=True)
                counts = counts + ops.cast(ops.logical_and(i == 0, j == last), "int32")
        return counts


def _or_own(inputs, num_rounds, output, log_weights):
    """Replace the output of queries without a key by their own value if they may attend to it."""
    alone = log_weights < LAST_RESORT
    if inputs.key_mask is not None:
        alone = ops.logical_and(alone, inputs.real_keys()[..., None])
    if inputs.mask_fn is not None:
        i = positions_by_head(inputs.query_positions)[..., None]
        alone = ops.logical_and(alone, inputs.mask_fn(i, i))
    own = inputs.value
    if inputs.dropout_fn is not None:
        weights = ops.ones((*sizes(own)[:3], 1), dtype="float32")
        seed = inputs.fold_in(num_rounds).seed
        own = ops.cast(inputs.dropout_fn(weights, seed), own.dtype) * own
    return ops.where(alone, own, output), ops.where(alone, LAST_RESORT, log_weights)
