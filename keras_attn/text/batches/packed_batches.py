"""Batches whose rows hold several sentences each."""

import bisect

import numpy as np

from keras_attn.ops.checks import check_sizes
from keras_attn.text.batches.datasets import Rows
from keras_attn.text.batches.permutation import EpochTables, Permutations, permutation
from keras_attn.text.batches.token_batches import TokenBatches, check_longest


class PackedBatches(TokenBatches):
    """Batches whose rows hold several sentence pairs each, or several texts, one after another.

        rows = tokens_per_batch // row_length,   sum of the lengths in a row <= row_length

    Other sentences take the place of padding, and all batches have one shape, so that one graph is
    traced or compiled. The models of `keras_attn` take the segment ids: each sentence has the loss
    and the gradient that it has alone. In rows of up to 511 tokens attention computes the scores of
    all pairs of the row; in longer rows "causal" layers compute a window as wide as the longest
    sentence. So rows as long as the longest sentence are the fastest. Neither side of a pair is
    cut, and both have the same segment number in their row.

    Pairs are packed once, by their lengths: the longest first, each into the first row with space
    for both sides. An epoch shuffles pairs of the same lengths among their slots, then the rows. So
    the number of batches is the same in every epoch. Empty rows fill the last batch. Packing takes
    O(P + C R) time for P pairs, C different pairs of lengths and R different rows, and memory for
    the different rows, and for the order of an epoch of up to 2**20 pairs; a batch takes time for
    its pairs.

    Everything is a function of `(seed, epoch)`, and epochs advance, as for `TokenBatches`.

    Args:
        sources: list of int arrays, token ids without special tokens, or the `documents` of a
            `TokenFiles` of pairs; None for texts of a language model.
        targets: list of int arrays of the same number, or the `documents` of texts; None for pairs
            in files.
        tokens_per_batch: int. Budget of a batch and side, as for `TokenBatches`.
        row_length: int. Tokens of a row and side, at least those of the longest sentence and its
            special token. On Multi30k at 4096 tokens 5 % of all ids are padding with 64, four times
            the mean, where a `TokenBatches` leaves 9 %.
        shuffle: bool. False gives every epoch the same batches.
        seed: int.
        pad_id, bos_id, eos_id: ints, as for `TokenBatches`.

    Returns:
        `batches[i]` is `(inputs, labels)`, int32 (rows, row_length): of each sentence source
        tokens + eos, bos + target tokens, target tokens + eos, and `pad_id` at the end of a row.
        `inputs` are `source_ids`, `source_segment_ids`, `target_ids` and `target_segment_ids`, or
        `token_ids` and `segment_ids`; segments are numbered from 1 in each row, and 0 is padding.

    Raises:
        ValueError: if the two sides differ in number, are empty, a sentence is longer than a row,
            or `tokens_per_batch` does not hold one row.

    Example:
        >>> import numpy as np
        >>> from keras_attn.text import PackedBatches
        >>> texts = [np.array([5, 6]), np.array([7])]
        >>> inputs, labels = PackedBatches(None, texts, tokens_per_batch=6, row_length=6)[0]
        >>> inputs["token_ids"].tolist(), inputs["segment_ids"].tolist(), labels.tolist()
        ([[2, 5, 6, 2, 7, 0]], [[1, 1, 1, 2, 2, 0]], [[5, 6, 3, 7, 3, 0]])

    Differs from the paper: pairs have two lengths; and the first row with space is taken, where the
    paper's histogram packing takes the one with the least or the most.

    Reference: [Krell et al., 2021](https://arxiv.org/abs/2107.02027), section 3.
    """

    _least_sides = 1

    def __init__(
        self,
        sources,
        targets=None,
        tokens_per_batch=4096,
        row_length=128,
        *,
        shuffle=True,
        seed=0,
        **kwargs,
    ):
        check_sizes(row_length=row_length, tokens_per_batch=tokens_per_batch)
        if tokens_per_batch < row_length:
            raise ValueError(
                "`tokens_per_batch` must hold one row. Received: "
                f"tokens_per_batch={tokens_per_batch}, row_length={row_length}"
            )
        self._has_sources = sources is not None
        self._shape = tokens_per_batch // row_length, row_length
        options = {"multiple": 1, "shuffle": shuffle, "seed": seed, **kwargs}
        super().__init__(sources, targets, tokens_per_batch, **options)

    def _planned(self):
        check_longest(self._items, self._order, row_length=self._shape[1])
        counts = np.diff(self._order.starts)
        packed = FirstFit(self._order.sizes + 1, counts, self._shape[1])
        return _PackedRows(packed, self._order, self._shape[0], self.shuffle, self.seed)

    def batch(self, epoch, index, rows=Rows()):
        here = rows.of(self._shape[0])
        numbers, counts = self._plan.items(epoch, range(len(self))[index], here)
        items = [self._items.item(number) for number in numbers.tolist()]
        shape = len(here), self._shape[1]
        targets, special = [item[-1] for item in items], self._special
        labels, token_ids, segments = _packed(targets, counts, shape, special)
        if not self._has_sources:
            return {"token_ids": token_ids, "segment_ids": segments}, labels
        sources = [item[0] for item in items]
        source_ids, _, source_segments = _packed(sources, counts, shape, special)
        inputs = {
            "source_ids": source_ids,
            "source_segment_ids": source_segments,
            "target_ids": token_ids,
            "target_segment_ids": segments,
        }
        return inputs, labels


class _PackedRows:
    """The items of the rows of each batch of an epoch.

    The order of up to 2**20 items is computed once an epoch and kept, as that of `LengthBuckets`.
    """

    def __init__(self, packed, order, size, shuffle, seed):
        self._packed, self._order, self._size = packed, order, size
        self._shuffle, self._seed = shuffle, seed
        self.num_batches = -(-packed.num_rows // size)
        self._tables = EpochTables(order.starts[-1], self._make_tables)

    def items(self, epoch, index, here):
        """Return the numbers of the items of some rows of a batch, and how many each row has."""
        first = index * self._size
        rows = range(self._packed.num_rows)[first : first + self._size][here.start : here.stop]
        tables = self._tables.of(epoch if self._shuffle else 0)
        rows = tables[0][rows.start : rows.stop] if tables else self._rows(epoch, rows)
        items = [_NO_ITEMS, *map(self._packed.row, rows.tolist())]
        kinds, numbers = (np.concatenate(parts) for parts in zip(*items, strict=True))
        if tables:
            numbers = tables[1][self._order.starts[kinds] + numbers]
        else:
            numbers = self._items(epoch, kinds, numbers)
        return numbers, [len(kinds) for kinds, _ in items[1:]]

    def _make_tables(self, epoch):
        """Return the rows of an epoch in their order, and the item at each place of all kinds."""
        sizes = np.diff(self._order.starts)
        kinds = np.repeat(np.arange(len(sizes)), sizes)
        numbers = np.arange(len(kinds)) - self._order.starts[kinds]
        rows = self._rows(epoch, range(self._packed.num_rows))
        return rows, self._items(epoch, kinds, numbers)

    def _rows(self, epoch, places):
        """Return the rows at places of an epoch, an array."""
        if not self._shuffle:
            return np.array(places, np.int64)
        return permutation(self._packed.num_rows, self._seed, epoch, 0)(places)

    def _items(self, epoch, kinds, numbers):
        """Return the items of kinds at places of an epoch."""
        if self._shuffle:
            sizes = np.diff(self._order.starts)
            numbers = Permutations(sizes, [self._seed, epoch, 1])(kinds, numbers)
        return self._order.take(self._order.starts[kinds] + numbers)


def _packed(sentences, counts, shape, special):
    """Return three arrays of rows of sentences: with ends, with beginnings, and their numbers.

    Args:
        sentences: list of int arrays, row after row.
        counts: list of the sentences of each row.
        shape: of the arrays; rows after those of `counts` are empty.
        special: `SpecialIds`.
    """
    arrays = np.zeros((3, *shape), np.int32)
    arrays[:2] = special.pad
    ended, begun, segments = arrays.reshape(3, -1)
    counts = np.array(counts, np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    lengths = np.array([*map(len, sentences)], np.int64) + 1
    ends = np.cumsum(lengths)
    # Where a sentence begins among those of all rows, and in the arrays.
    begins = ends - lengths
    starts = begins - begins[np.arange(len(rows)) - number] + rows * shape[1]
    places = np.arange(lengths.sum()) + np.repeat(starts - begins, lengths)
    is_id = np.ones(len(places), bool)
    is_id[ends - 1] = False
    id_places = places[is_id]  # before the end, and one further after the beginning
    ended[id_places] = begun[id_places + 1] = np.concatenate([_NO_IDS, *sentences])
    ended[starts + lengths - 1], begun[starts] = special.eos, special.bos
    segments[places] = np.repeat(number + 1, lengths)
    return arrays


_NO_IDS = np.empty(0, np.int32)
_NO_ITEMS = np.empty((2, 0), np.int64)


class FirstFit:
    """Rows of items by first fit: the longest kind first, each item into the first row with space.

    Rows of the same content are neighbours, and are kept as one interval. So memory grows with the
    number of kinds, not with that of the items; time is O(kinds x intervals).

    Args:
        sizes: int (C, K), the lengths of C kinds in K dimensions.
        counts: int (C,), how many items there are of each.
        capacity: int. The length of a row in each dimension.

    Attributes:
        num_rows: int.
    """

    def __init__(self, sizes, counts, capacity):
        self.num_rows = 0
        starts, free = np.empty(0, np.int64), np.empty((0, sizes.shape[1]), np.int64)
        taken = []  # of each kind: first row, row after the last, items a row, first item
        for kind in np.lexsort((*sizes.T, sizes.max(axis=1)))[::-1].tolist():
            size, count = sizes[kind], int(counts[kind])
            fitting = (free // size).min(axis=1)
            numbers = np.diff(starts, append=self.num_rows)
            more = -(-max(count - int((numbers * fitting).sum()), 0) // (capacity // size).min())
            if more:
                starts = np.append(starts, self.num_rows)
                numbers = np.append(numbers, more)
                free = np.concatenate([free, np.full((1, len(size)), capacity)])
                fitting = np.append(fitting, (capacity // size).min())
                self.num_rows += int(more)
            before = np.cumsum(numbers * fitting) - numbers * fitting
            starts, free, each = _divided(starts, free, fitting, before, numbers, count)
            free = free - each[:, None] * size
            numbers = np.diff(starts, append=self.num_rows)
            begins = np.cumsum(numbers * each) - numbers * each
            for n in np.flatnonzero(each).tolist():
                rows = int(starts[n]), int(starts[n] + numbers[n])
                taken.append((kind, *rows, int(each[n]), int(begins[n])))
        intervals = [[] for _ in starts]  # of the items of a row: kind, number, step a row
        for kind, first, stop, each, begin in taken:
            items = [(kind, begin - first * each + item, each) for item in range(each)]
            for interval in range(*np.searchsorted(starts, [first, stop]).tolist()):
                intervals[interval] += items
        self._starts = starts.tolist()
        self._intervals = [np.array(items).T for items in intervals]

    def row(self, index):
        """Return the items of a row, the longest first: their kinds, and numbers in the kind."""
        kinds, numbers, steps = self._intervals[bisect.bisect_right(self._starts, index) - 1]
        return kinds, numbers + index * steps


def _divided(starts, free, fitting, before, numbers, count):
    """Divide the interval in which the items end; return intervals and the items of their rows."""
    each = np.where(before < count, fitting, 0)
    for last in np.flatnonzero((each > 0) & (before + numbers * fitting > count)).tolist():
        rows, rest = divmod(count - int(before[last]), int(fitting[last]))
        parts = [(starts[last], fitting[last])] if rows else []
        parts += [(starts[last] + rows, rest)] if rest else []
        after = rows + (rest > 0)
        parts += [(starts[last] + after, 0)] if after < numbers[last] else []
        cut = [slice(None, last), slice(last + 1, None)]
        starts, each = (
            np.concatenate([old[cut[0]], [part[n] for part in parts], old[cut[1]]])
            for n, old in enumerate((starts, each))
        )
        free = np.concatenate(
            [free[cut[0]], np.repeat(free[last : last + 1], len(parts), 0), free[cut[1]]]
        )
    return starts, free, each
