"""Batches of items of similar length, by arithmetic."""

import bisect
from typing import NamedTuple

import numpy as np

from keras_attn.text.epoch_tables import EpochTables
from keras_attn.text.permutation import permutation


class Buckets:
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
        found, first = np.unique(widths, return_index=True)
        places = starts[[*first, len(widths)]].tolist()
        for width, place, stop in zip(found.tolist(), places, places[1:], strict=False):
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
        found, rest = [], np.empty(0, np.int64)
        for number, bucket in enumerate(self._buckets):
            own = bucket.first + np.arange(bucket.total - bucket.waiting)
            items = np.concatenate([rest[len(rest) - bucket.waiting :], own])
            places = self._shuffled(epoch, number + 1, bucket.total, np.arange(bucket.total))
            found.append(rest := items[places])
        return batches.tolist(), found

    def _shuffled(self, epoch, stream, size, places):
        """Return what is at places of `size` things in order; stream 0 is that of the batches."""
        return permutation(size, self._seed, epoch, stream)(places) if self._shuffle else places

    def _resolved(self, epoch, number, places):
        """Return the order's places of places in a bucket."""
        found, left = np.empty_like(places), np.arange(len(places))
        while len(left):
            bucket = self._buckets[number]
            places = self._shuffled(epoch, number + 1, bucket.total, places)
            own = places >= bucket.waiting
            found[left[own]] = bucket.first + places[own] - bucket.waiting
            left, places, number = left[~own], places[~own], number - 1
            if len(left):
                places = self._buckets[number].total - bucket.waiting + places
        return found


class _Bucket(NamedTuple):
    first: int  # place of its first own item in the order of lengths
    waiting: int  # items of narrower buckets
    total: int
    size: int  # items of a batch
