"""Attention among positions of the same hash."""

import functools
import math
import numbers

from keras import ops

from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.plans import BlockLocal, Plan, resize
from keras_attn.attention.softmax import at_least_float32, merge_by_logsumexp
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.random import stateless_normal
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis
from keras_attn.ops.sorting import permute, row_starts, sort_order
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register

# The logit of a query's own key: more than none at all, less than any other.
LAST_RESORT = -1e20
# The bucket of padding, after all others.
PADDING = 2**28
# More buckets are pairs of two smaller numbers, or choosing one would cost more than attention.
MOST_SINGLE_BUCKETS = 128


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

    def check(self, score=None, length=None):
        if score is not None and not score.shares_query:
            raise ValueError(
                "The pattern LSH needs a score whose queries are their own keys, like "
                f"'shared_qk': others may be high where hashes differ. Received: score={score!r}."
            )

    def buckets(self, inputs):
        """Return the bucket of each key in each round, int32 (B, N, rounds, S)."""
        num_buckets = self.num_buckets
        if num_buckets is None:
            num_keys = inputs.key.shape[2] or size(inputs.key, 2)
            num_buckets = default_buckets(num_keys, self.chunk_length)
        seed = self.seed if inputs.seed is None else inputs.fold_in(self.num_rounds + 1).seed
        buckets = hash_directions(inputs.key, num_buckets, self.num_rounds, seed)
        real = inputs.real_keys()
        return buckets if real is None else ops.where(ops.expand_dims(real, 2), buckets, PADDING)

    def dense_mask_and_bias(self, inputs):
        self.check_inputs(inputs)
        mask, _ = super().dense_mask_and_bias(inputs)
        i, j = positions_by_head(inputs.query_positions), positions_by_head(inputs.key_positions)
        bias = ops.where(ops.expand_dims(i, -1) == ops.expand_dims(j, -2), LAST_RESORT, 0.0)
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

    @functools.cached_property
    def plan(self):
        return SortedChunks(self)

    def check_inputs(self, inputs):
        """Refuse inputs whose score or documents do not fit the pattern."""
        self.check(inputs.score)
        if self.wrap and inputs.documents is not None:
            raise ValueError(
                "`wrap` does not fit packed rows, where it would join the ends of two documents. "
                f"Received: segment_ids, wrap={self.wrap!r}."
            )

    def _counts(self, inputs):
        """Count the rounds in which each pair (B, N, S, S) meets."""
        buckets = self.buckets(inputs)
        _, _, ranks = sort_by_bucket(inputs, buckets)
        rounds = chunk_numbers(ranks, buckets, self.chunk_length, self.across_buckets)
        counts = 0
        for number in range(self.num_rounds):
            own = rounds[:, :, number]
            i, j = ops.expand_dims(own, -1), ops.expand_dims(own, -2)
            counts = counts + ops.cast(meet(i, j), "int32")
            if self.wrap:
                j = ops.expand_dims(rounds[:, :, number - 1], -2)
                last = ops.max(j, axis=-1, keepdims=True, initial=0)
                counts = counts + ops.cast(ops.logical_and(i == 0, j == last), "int32")
        return counts


class SortedChunks(Plan):
    """The keys of a query's chunk and of the one before, of positions sorted by their buckets.

    Time O(rounds S (chunk_length + log S)) and memory O(rounds S) per head.
    """

    def __init__(self, pattern):
        super().__init__(pattern.mask_mod)
        self.pattern = pattern

    def attend_row(self, inputs, log_weight=False):
        self.pattern.check_inputs(inputs)
        length, num_keys = inputs.query.shape[2], inputs.key.shape[2]
        if length != num_keys:
            raise ValueError(
                "The plan of LSH is for queries that are their own keys, as many as keys. "
                f"Received: {length} queries, {num_keys} keys."
            )
        output, log_weights = self._attend_rounds(inputs, self.pattern.buckets(inputs))
        output, log_weights = _or_own(inputs, self.pattern.num_rounds, output, log_weights)
        return output, log_weights if log_weight else None

    attend_documents = attend_row

    def _attend_rounds(self, inputs, buckets):
        """Return the output (B, N, S, Hv) and the log weight (B, N, S, 1) of all rounds.

        `buckets` are int32 (B, N, rounds, S).
        """
        pattern, wrap = self.pattern, self.pattern.wrap
        length = inputs.query.shape[2] or pattern.chunk_length
        block = min(pattern.chunk_length, length)
        order, inverse, ranks = sort_by_bucket(inputs, buckets)
        chunks = chunk_numbers(ranks, buckets, pattern.chunk_length, pattern.across_buckets)
        # `BlockLocal` gets row numbers for positions: buckets and chunks are looked up by them.
        starts = row_starts(inputs.query)
        numbers = range(buckets.shape[2])
        order, inverse = ([x[:, :, r] + starts for r in numbers] for x in (order, inverse))
        chunks, buckets = (
            [ops.reshape(x[:, :, r], (-1,)) for r in numbers] for x in (chunks, buckets)
        )
        is_shared, documents = inputs.key is inputs.query, inputs.documents
        has_marks = wrap or inputs.real_keys() is not None

        def flat(x):  # (B or 1, N or 1, S) -> (B N S,)
            return ops.reshape(ops.broadcast_to(x, sizes(inputs.key)[:3]), (-1,))

        key_marks = flat(inputs.key_marks()[..., 0]) if has_marks else None
        query_documents = None if documents is None else flat(documents.queries[..., 0])
        mask_fn = _mask_of_rows(inputs, flat)

        def sort(r):
            query, value = [permute(x, order[r], inverse[r]) for x in (inputs.query, inputs.value)]
            sorted_inputs = inputs.fold_in(r).replace(
                query=query,
                key=query if is_shared else permute(inputs.key, order[r], inverse[r]),
                value=value,
                query_positions=order[r],
                key_positions=order[r],
                mask_fn=mask_fn,
            )
            if not has_marks:
                return sorted_inputs
            marks = _look_up(key_marks, order[r])
            if documents is None:
                return sorted_inputs.with_key_marks(marks)
            return sorted_inputs.with_key_marks(
                marks, ops.expand_dims(_look_up(query_documents, order[r]), -1)
            )

        rounds = [sort(r) for r in numbers]
        if wrap:
            rounds = [_after(rounds[r - 1], rounds[r], block) for r in numbers]
        # In packed rows, a document's chunks begin anywhere in the blocks.
        before, after = (1, 0) if documents is None else (2, 1)
        parts = []
        for r in numbers:
            own_buckets = buckets[r] if documents is None else None
            allowed = functools.partial(self._meet_in_round, chunks[: r + 1], own_buckets)
            plan = BlockLocal(allowed, block, before, after)
            results = plan.attend_row(rounds[r], log_weight=True)
            parts.append([permute(x, inverse[r], order[r]) for x in results])
        return merge_by_logsumexp(parts)

    def _meet_in_round(self, chunks, buckets, i, j):
        """Return True for pairs of rows that meet in the last round of `chunks`, and in no other.

        `chunks` has the chunk number of each row in each round; `buckets` the bucket of each row in
        the last one, None in packed rows, whose chunks do not begin with the blocks.
        """
        *earlier_chunks, own_chunks = chunks
        met = j < i if self.pattern.causal else j != i
        if buckets is None:
            met = ops.logical_and(met, meet(_look_up(own_chunks, i), _look_up(own_chunks, j)))
        elif not self.pattern.across_buckets:
            met = ops.logical_and(met, _look_up(buckets, i) == _look_up(buckets, j))
        for earlier in () if self.pattern.wrap else earlier_chunks:
            met_before = meet(_look_up(earlier, i), _look_up(earlier, j))
            met = ops.logical_and(met, ops.logical_not(met_before))
        return met

    def tiles(self, inputs):
        length = inputs.query.shape[2]
        block = min(self.pattern.chunk_length, length)
        if self.pattern.wrap:
            inputs = resize(inputs, num_keys=block + length)
        (tiles,) = BlockLocal(None, block, before=1).tiles(inputs)
        return self.pattern.num_rounds * [tiles._replace(num_distances=None)]

    def extra_products(self, inputs):
        pattern, num_keys = self.pattern, inputs.key.shape[2]
        buckets = pattern.num_buckets or default_buckets(num_keys, pattern.chunk_length)
        directions = sum((count or 0) // 2 for count in _factors(buckets))
        return math.prod(inputs.key.shape) * pattern.num_rounds * directions, 0

    def keys_per_query(self, num_keys):
        return min(num_keys, 2 * self.pattern.chunk_length * self.pattern.num_rounds)


def _or_own(inputs, num_rounds, output, log_weights):
    """Replace the output of queries without a key by their own value if they may attend to it."""
    alone = log_weights < LAST_RESORT
    real = inputs.real_keys()
    if real is not None:
        alone = ops.logical_and(alone, ops.expand_dims(real, -1))
    if inputs.mask_fn is not None:
        i = ops.expand_dims(positions_by_head(inputs.query_positions), -1)
        alone = ops.logical_and(alone, inputs.mask_fn(i, i))
    own = inputs.value
    if inputs.dropout_fn is not None:
        weights = ops.ones((*sizes(own)[:3], 1), dtype="float32")
        seed = inputs.fold_in(num_rounds).seed
        own = ops.cast(inputs.dropout_fn(weights, seed), own.dtype) * own
    return ops.where(alone, own, output), ops.where(alone, LAST_RESORT, log_weights)


def _after(previous, inputs, block):
    """Return inputs with the last chunk of the previous round's keys before their own."""
    length = size(inputs.query, 2)
    start = (ceil_div(length, block) - 1) * block

    def join(name):
        last = slice_axis(getattr(previous, name), start, length - start, axis=2)
        last = pad(last, 0, block - (length - start))
        return ops.concatenate([last, getattr(inputs, name)], axis=2)

    names = ("key", "value", "key_positions", "key_mask")
    return inputs.replace(**{name: join(name) for name in names})


def _mask_of_rows(inputs, flatten):
    """Return `mask_fn` of the inputs as a function of row numbers; None for none."""
    if inputs.mask_fn is None:
        return None
    positions = flatten(positions_by_head(inputs.key_positions))
    return lambda i, j: inputs.mask_fn(_look_up(positions, i), _look_up(positions, j))


def _look_up(table, rows):
    return ops.take(table, rows, axis=0)


def default_buckets(num_keys, chunk_length):
    """Return two buckets for each chunk: an int if the number of keys is known, else a tensor."""
    chunks = num_keys // chunk_length
    return 2 * (max(chunks, 1) if isinstance(chunks, int) else ops.maximum(chunks, 1))


def hash_directions(x, num_buckets, num_rounds, seed):
    """Hash vectors in each round: a bucket is the random axis along which a vector is longest.

        bucket(x) = argmax([x R ; -x R]),   R normal (H, num_buckets / 2)

    Vectors of the same direction share a bucket, others the more likely the smaller their angle.
    More than 128 buckets are pairs of two such numbers. Each head and round has axes of its own.
    Time O(rounds S H sqrt(num_buckets)) per head, or O(rounds S H num_buckets) up to 128.

    The result is int32 (B, N, num_rounds, S), in [0, num_buckets) or, in pairs, less than the next
    product of two even numbers. `x` is (B, N, S, H), `num_buckets` an even int or int tensor, and
    `seed` an int, or int32 (2,), which may be a tensor.
    """
    x = at_least_float32(ops.stop_gradient(x))
    seed = ops.cast([seed, 0] if isinstance(seed, int) else seed, "int32")
    first, second = _factors(num_buckets)
    buckets = _furthest(x, first, num_rounds, seed)
    if second is None:
        return buckets
    others = _furthest(x, second, num_rounds, seed + 1)
    if not isinstance(num_buckets, int):
        others = others * ops.cast(num_buckets > MOST_SINGLE_BUCKETS, "int32")
    return buckets + first * others


def _factors(num_buckets):
    """Return two even numbers, the second may be None, of a product of at least `num_buckets`."""
    if isinstance(num_buckets, int):
        if num_buckets <= MOST_SINGLE_BUCKETS:
            return num_buckets, None
        first = 2 * math.ceil(math.sqrt(num_buckets) / 2)
        return first, 2 * math.ceil(num_buckets / first / 2)
    root = ops.cast(ops.ceil(ops.sqrt(ops.cast(num_buckets, "float32")) / 2), "int32")
    first = ops.where(num_buckets > MOST_SINGLE_BUCKETS, 2 * root, num_buckets)
    return first, 2 * ((num_buckets + 2 * first - 1) // (2 * first))


def _furthest(x, count, num_rounds, seed):
    """Return which of `count` directions, axes then opposites, is nearest: (B, N, rounds, S)."""
    half = count // 2
    num_heads, width = x.shape[1], x.shape[3]
    axes = ops.cast(stateless_normal((num_heads, width, num_rounds * half), seed), x.dtype)
    along = ops.matmul(x, axes)  # (B, N, S, rounds * half)
    along = ops.reshape(along, (size(x, 0), num_heads, size(x, 2), num_rounds, half))
    # Four times faster than argmax([along, -along]).
    furthest, axis = ops.top_k(ops.abs(along), 1)
    # With an initial value Keras takes tensors without a position.
    opposite = ops.max(along, axis=-1, keepdims=True, initial=0.0) < furthest
    directions = ops.cast(axis, "int32") + half * ops.cast(opposite, "int32")
    return ops.transpose(directions[..., 0], (0, 1, 3, 2))


def chunk_numbers(ranks, buckets, chunk_length, across_buckets):
    """Return numbers for `meet`, by each position's rank among buckets and its bucket (..., S)."""
    chunks = ranks // chunk_length
    # A later bucket lies in a later chunk or the same one: two more tell them apart.
    return chunks if across_buckets else chunks + 2 * buckets


def sort_by_bucket(inputs, buckets):
    """Return the order of positions by bucket, its inverse, and each position's rank.

    They are int32 (B, N, rounds, S). In packed rows documents are sorted one by one, and ranks are
    those in the document.
    """
    if inputs.documents is None:
        order, inverse = sort_order(buckets)
        return order, inverse, inverse
    documents = ops.expand_dims(inputs.documents.queries[..., 0], 2)
    index = ops.arange(size(inputs.key, 2), dtype="int32")
    starts = ops.broadcast_to(ops.where(documents > 0, documents - 1, index), ops.shape(buckets))
    order, inverse = sort_order(buckets, starts)
    return order, inverse, inverse - starts


def meet(i, j):
    """Return True where the chunk number of a query is that of a key or one more."""
    return ops.logical_and(i >= j, i <= j + 1)
