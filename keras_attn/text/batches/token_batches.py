"""Batches of sentence pairs of similar length."""

import bisect
from typing import NamedTuple

import keras
import numpy as np

from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.text.batches.datasets import RowBatches, Rows, dataset_of, import_tensorflow
from keras_attn.text.batches.length_order import LengthOrder
from keras_attn.text.batches.permutation import EpochTables, permutation
from keras_attn.text.corpus.token_files import Documents
from keras_attn.text.tokenizers.tokenizer import Tokenizer

_BLOCK = 2**20


class SpecialIds(NamedTuple):
    """Ids of padding, of the first token of a target and of the last token of a text."""

    pad: int
    bos: int
    eos: int


class TokenBatches(keras.utils.PyDataset, RowBatches):
    """Batches of sentence pairs of similar length, with a maximum number of tokens.

        rows * max(source length, target length) <= tokens_per_batch        (all padded)

    This is the published "4096 tokens a batch": padding and special tokens count, for source and
    target separately. Pairs form buckets by the longer side, rounded up to `multiple`. An epoch
    shuffles each bucket, cuts it into full batches, moves the remaining pairs to the next longer
    bucket, and shuffles the batches. So the pairs of a batch are random, at most one batch of an
    epoch is small, and the number of batches and their sizes are the same in every epoch. The pairs
    of a batch follow from `Permutation`s, so that an epoch of more than 2**20 pairs has no table. A
    corpus in files stays there; beginning takes O(number of pairs) time.

    Everything is a function of `(seed, epoch)`: a run that sets `epoch = k` continues exactly like
    one that reached epoch k by itself. Epochs advance automatically, at every pass over
    `as_dataset()`, which `model.fit` takes, and on JAX also in `model.fit(batches, shuffle=False)`
    (Keras would shuffle the batches again otherwise). On TensorFlow that call can fail within an
    epoch: if its first two batches have one length, Keras assumes that all have it. In the scope of
    a `keras_attn.distribution.strategy` the rows of each batch are divided among the replicas, of
    which the last get fewer if they do not divide; on JAX rows of padding fill the batch up. Each
    process reads and makes its rows only.

    Args:
        sources: list of int arrays, token ids without special tokens; or the `documents` of a
            `TokenFiles` of pairs.
        targets: list of int arrays of the same number; None for pairs in files.
        tokens_per_batch: int. Budget of a batch over all replicas, without rows that fill it.
        max_length: int. Longest sentence allowed, `eos` included; padding does not exceed it
            either. None allows any.
        multiple: int. Padded lengths are multiples of it. A larger one means fewer shapes to
            compile and more padding: on Multi30k at 4096 tokens 6, 9, 15, 23 % of all ids for
            1, 2, 4, 8.
        shuffle: bool. False gives every epoch the same batches, from the shortest to the longest.
        seed: int.
        pad_id, bos_id, eos_id: ints. Those of the tokenizer; `pad_id` is also the `ignore_class` of
            the loss. The defaults are those of tokenizers that this library trains.

    Returns:
        `batches[i]` is `({"source_ids": (B, S), "target_ids": (B, T)}, labels (B, T))`, int32:
        source tokens + eos, bos + target tokens, target tokens + eos, each padded with `pad_id`.

    Raises:
        ValueError: if the two sides differ in number, are empty or no integers, a sentence is too
            long, or a pair is longer than `tokens_per_batch`.

    Example:
        >>> import numpy as np
        >>> from keras_attn.text import TokenBatches
        >>> batches = TokenBatches([np.array([5, 6])], [np.array([7])], tokens_per_batch=16)
        >>> inputs, labels = batches[0]
        >>> inputs["source_ids"].tolist(), inputs["target_ids"].tolist(), labels.tolist()
        ([[5, 6, 3, 0]], [[2, 7]], [[7, 3]])

    Differs from the paper: 4096 tokens by default where the paper's batches had about 25000.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.1.
    """

    _shape = (None, None)  # of all arrays of a batch
    _least_sides = 2

    def __init__(
        self,
        sources,
        targets=None,
        tokens_per_batch=4096,
        *,
        max_length=None,
        multiple=2,
        shuffle=True,
        seed=0,
        pad_id=Tokenizer.pad_id,
        bos_id=Tokenizer.bos_id,
        eos_id=Tokenizer.eos_id,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(multiple=multiple, tokens_per_batch=tokens_per_batch)
        check_sizes(least=0, pad_id=pad_id, bos_id=bos_id, eos_id=eos_id)
        self._special = SpecialIds(pad_id, bos_id, eos_id)
        self._items = items = items_of(sources, targets)
        check_that(items.sides >= self._least_sides, "a list of sentences", sources=sources)
        self.epoch = 0
        self._is_running = False
        self.seed = seed
        self.shuffle = shuffle
        self._multiple, self._max_length = multiple, max_length
        self._tokens_per_batch = tokens_per_batch
        self._distribution = keras.distribution.distribution()
        self._order = LengthOrder(items)
        check_longest(items, self._order, max_length=max_length)
        self._plan = self._planned()

    def __len__(self):
        return self._plan.num_batches

    def __getitem__(self, index):
        return self.batch(self.epoch, index, Rows.here(self._distribution))

    def batch(self, epoch, index, rows=Rows()):
        """Return the batch at an index of an epoch; `rows` selects the rows of one process."""
        places = self._plan.places(epoch, range(len(self))[index])
        here = rows.of(len(places))
        numbers = self._order.take(places[here.start : here.stop]).tolist()
        items = [self._items.item(number) for number in numbers]
        lengths = self._order.sizes[self._order.kinds(places)].max(axis=0) + 1
        widths = [self._rounded(length) for length in lengths.tolist()]
        sides = zip(zip(*items, strict=True) if items else ((), ()), widths, strict=True)
        (source_ids, _), (labels, target_ids) = (
            _padded(*side, len(here), self._special) for side in sides
        )
        return {"source_ids": source_ids, "target_ids": target_ids}, labels

    def on_epoch_begin(self):
        self._is_running = True

    def on_epoch_end(self):
        # `fit` also calls this before its first epoch, where it resets its iterator.
        if self._is_running:
            self.epoch += 1
        self._is_running = False

    def as_dataset(self):
        """Return a `tf.data.Dataset` of the same batches; each pass over it takes one epoch."""
        tf = import_tensorflow()

        def one_epoch(rows):
            epoch, self.epoch = self.epoch, self.epoch + 1
            return (self.batch(epoch, index, rows) for index in range(len(self)))

        ids = tf.TensorSpec(self._shape, tf.int32)
        signature = keras.tree.map_structure(lambda _: ids, self.batch(0, 0))
        return dataset_of(one_epoch, signature, len(self))

    def _planned(self):
        widths = self._rounded_all(self._order.sizes)
        if self._tokens_per_batch < widths[-1]:
            number = first_of(self._items, lambda lengths: self._rounded_all(lengths) >= widths[-1])
            raise ValueError(
                "`tokens_per_batch` must hold each pair, but pair "
                f"{number + 1} takes {widths[-1]} tokens. Received: "
                f"tokens_per_batch={self._tokens_per_batch}"
            )
        order = self._order.starts, widths
        return LengthBuckets(*order, self._tokens_per_batch, self.shuffle, self.seed)

    def _rounded_all(self, lengths):
        return np.array([self._rounded(n) for n in (lengths.max(axis=1) + 1).tolist()])

    def _rounded(self, length):
        rounded = -(-length // self._multiple) * self._multiple
        return rounded if self._max_length is None else min(rounded, self._max_length)


def _padded(rows, width, number, special):
    """Return two arrays of ids (number, width), int32: rows and their end, beginning and rows."""
    ended, begun = np.full((2, number, width), special.pad, np.int32)
    lengths = np.array([*map(len, rows)], np.int64)
    is_token = np.arange(width) < lengths[:, None]
    ids = np.concatenate([np.empty(0, np.int32), *rows])
    ended[: len(rows)][is_token] = ids
    ended[np.arange(len(rows)), lengths] = special.eos
    begun[: len(rows), 0] = special.bos
    begun[: len(rows), 1:][is_token[:, :-1]] = ids
    return ended, begun


def items_of(sources, targets):
    """Return the pairs, or texts, of two lists, of one (`sources` None) or in files."""
    if isinstance(sources, Documents) and targets is None and sources.sides == 2:
        return _not_empty(sources, "sources")
    if isinstance(targets, Documents) and sources is None and targets.sides == 1:
        return _not_empty(targets, "targets")
    sides = {"sources": targets if sources is None else sources, "targets": targets}
    for name, side in sides.items():
        if isinstance(side, Documents):
            raise ValueError(
                "`sources` alone must be the documents of a corpus of pairs, `targets` alone those "
                f"of texts. Received: {name} of documents with {side.sides} sides."
            )
    _check_lists(sides)
    return PairLists(targets) if sources is None else PairLists(sources, targets)


def _check_lists(sides):
    """Refuse lists of different or no items, and items that are no token ids."""
    numbers = ["none" if side is None else len(side) for side in sides.values()]
    if numbers[0] != numbers[1] or numbers[0] in ("none", 0):
        raise ValueError(
            "`sources` and `targets` must have the same number of sentences, and at least one. "
            f"Received: {numbers[0]} and {numbers[1]}"
        )
    for name, rows in sides.items():
        for index, row in enumerate(rows):
            if len(row) and np.asarray(row[:1]).dtype.kind not in "iu":
                raise ValueError(
                    f"`{name}` must be lists of token ids, integers; `encode_as_lists` of a "
                    f"tokenizer makes them of text. Received: {name}[{index}]={row!r}."
                )


def _not_empty(documents, name):
    if not len(documents):
        raise ValueError(f"`{name}` must have at least one document. Received: none.")
    return documents


def check_longest(items, order, **limit):
    """Refuse an item of which a side is too long, with its end token, by its number.

    Args:
        items: pairs or texts.
        order: their `LengthOrder`.
        limit: one keyword, the name and the value of the user's argument; None for no limit.
    """
    ((name, longest),) = limit.items()
    if longest is None or order.sizes.max() < longest:
        return
    for side, word in enumerate(("source", "target")[-items.sides :]):
        if order.sizes[:, side].max() >= longest:
            number = first_of(items, lambda lengths: lengths[:, side] >= longest)
            tokens = items.lengths(number, number + 1)[0, side] + 1
            raise ValueError(
                f"The {word} of item {number + 1} has {tokens} tokens with its end token, more "
                f"than the maximum. Received: {name}={longest}."
            )


def first_of(items, condition):
    """Return the number of the first item whose lengths meet a condition."""
    for start in range(0, len(items), _BLOCK):
        lengths = items.lengths(start, min(start + _BLOCK, len(items)))
        numbers = np.flatnonzero(condition(lengths))
        if len(numbers):
            return start + int(numbers[0])


class PairLists:
    """Pairs of texts in two lists, or the texts of one, of which item i is a tuple of its sides.

    Args:
        *sides: lists of int arrays of the same number.
    """

    def __init__(self, *sides):
        self._sides = sides
        self._lengths = np.array([[*map(len, side)] for side in sides], np.int64).T
        self.sides = len(sides)

    def __len__(self):
        return len(self._sides[0])

    def item(self, index):
        """Return the sides of an item."""
        return tuple([side[index] for side in self._sides])  # faster than of a generator

    def lengths(self, start, stop):
        """Return the number of tokens of each side of items, int64 (n, sides)."""
        return self._lengths[start:stop]


class LengthBuckets:
    """The items of each batch of an epoch, where a batch has items of similar width.

    Items of one width are a bucket, after those of the narrower bucket that did not fill a batch. A
    bucket is shuffled, cut into full batches, and its rest goes on to the next one. Which item is
    at a place of a batch follows from permutations of each bucket, undone from bucket to bucket.
    Many items have no table: it takes memory for the buckets. The order of up to 2**20 items is
    computed once an epoch and kept, which is several times as fast.

    Args:
        starts: int (kinds + 1,), the place of the first item of each kind in the order of lengths.
        widths: int (kinds,), which never decrease.
        tokens: int. A batch has at most `tokens // width` items.
        shuffle: bool.
        seed: int.
    """

    def __init__(self, starts, widths, tokens, shuffle, seed):
        self._shuffle, self._seed = shuffle, seed
        self._buckets, self._ends, waiting, end = [], [], 0, 0
        distinct, first = np.unique(widths, return_index=True)
        places = starts[[*first, len(widths)]].tolist()
        for width, place, stop in zip(distinct.tolist(), places, places[1:], strict=False):
            bucket = _Bucket(place, waiting, waiting + stop - place, tokens // width)
            self._buckets.append(bucket)
            waiting = bucket.total % bucket.size
            end += bucket.total // bucket.size
            self._ends.append(end)
        self.num_batches = end + (waiting > 0)
        self._tables = EpochTables(starts[-1], self._make_tables)

    def places(self, epoch, index):
        """Return the places of the items of a batch, in the order of lengths."""
        tables = self._tables.of(epoch if self._shuffle else 0)
        index = tables[0][index] if tables else self._shuffled(epoch, 0, self.num_batches, index)
        number = bisect.bisect_right(self._ends, index)
        if number == len(self._ends):  # the last batch, of what no bucket took
            number -= 1
        bucket = self._buckets[number]
        first = (index - (self._ends[number - 1] if number else 0)) * bucket.size
        places = np.arange(first, min(first + bucket.size, bucket.total))
        return tables[1][number][places] if tables else self._resolved(epoch, number, places)

    def _make_tables(self, epoch):
        """Return the numbers of the batches, and the order's place of each place of all buckets."""
        batches = self._shuffled(epoch, 0, self.num_batches, np.arange(self.num_batches))
        places = []
        for number, bucket in enumerate(self._buckets):
            narrower = places[-1] if places else None
            places.append(self._resolved(epoch, number, np.arange(bucket.total), narrower))
        return batches.tolist(), places

    def _shuffled(self, epoch, stream, size, places):
        """Return what is at places of `size` things in order; stream 0 is that of the batches."""
        return permutation(size, self._seed, epoch, stream)(places) if self._shuffle else places

    def _resolved(self, epoch, number, places, narrower=None):
        """Return the order's places of places in a bucket; `narrower` has all of the one before."""
        resolved, left = np.empty_like(places), np.arange(len(places))
        while len(left):
            bucket = self._buckets[number]
            places = self._shuffled(epoch, number + 1, bucket.total, places)
            own = places >= bucket.waiting
            resolved[left[own]] = bucket.first + places[own] - bucket.waiting
            left, places, number = left[~own], places[~own], number - 1
            if len(left):
                places = self._buckets[number].total - bucket.waiting + places
                if narrower is not None:
                    resolved[left] = narrower[places]
                    break
        return resolved


class _Bucket(NamedTuple):
    first: int  # place of its first own item in the order of lengths
    waiting: int  # items of narrower buckets
    total: int
    size: int  # items of a batch
