"""Permutations of large ranges without a table, and tables of what holds for one epoch."""

import functools

import numpy as np

from keras_attn.ops.checks import check_sizes

_ROUNDS = 8  # four leave a bias of some percent in ranges of a few numbers
_MOST = 2**62


class Permutation:
    """A random permutation of range(n), each place of which is computed by itself.

        (l, r) -> (r, l ^ F(r)), eight times;   again while the result is n or more

    l and r are the halves of the bits of a number, and F mixes the bits of one half with a key that
    is drawn from the seed. Each round can be undone, so no two numbers meet, and repeating keeps
    them in range(n). It takes O(1) memory and, on average, at most 4 passes over a number: some
    3,000,000 numbers a second.

    Use it to read a corpus in a random order that needs no list.

    Args:
        n: int, at most 2**62.
        seed: int, or list of ints.

    Returns:
        Called with ints (k,) in [0, n), their images, int64 (k,); with one int an int.

    Raises:
        ValueError: if `n` is out of range, or a number that is called for, or that is no integer.

    Example:
        >>> from keras_attn.text import Permutation
        >>> sorted(Permutation(5, seed=[0, 1])(range(5)).tolist())
        [0, 1, 2, 3, 4]

    Differs from the paper: a mixing function takes the place of a pseudorandom one.

    Reference: [Black and Rogaway, 2002](https://doi.org/10.1007/3-540-45760-7_9), sections 3 and 4:
        cycle walking and Feistel networks.
    """

    def __init__(self, n, seed):
        check_sizes(least=0, n=n)
        if n > _MOST:
            raise ValueError(f"`n` must be at most 2**62. Received: n={n}.")
        self._n = n = int(n)  # a NumPy integer has no `bit_length`
        self._half = np.uint64(-(-max(n - 1, 1).bit_length() // 2))
        self._keys = keys_of(seed)

    def __len__(self):
        return self._n

    def __call__(self, index):
        index = np.asarray(index)
        if index.size and not np.issubdtype(index.dtype, np.integer):
            raise ValueError(f"`index` must be integers. Received: dtype={index.dtype}.")
        places = np.atleast_1d(index).astype(np.int64)
        if places.size and not 0 <= places.min() <= places.max() < self._n:
            raise ValueError(
                f"`index` must be in [0, {self._n}). "
                f"Received: numbers from {places.min()} to {places.max()}."
            )
        out = _walked(places, np.uint64(self._n), self._half, self._keys)
        return out if index.ndim else int(out[0])


class Permutations:
    """A random permutation of each of many ranges that are shorter than 2**53, as `Permutation`.

    Args:
        sizes: int (C,), the numbers of each range.
        seed: int, or list of ints.

    Returns:
        Called with ranges (k,) and ints in them (k,), their images, int64 (k,).
    """

    def __init__(self, sizes, seed):
        bits = np.frexp(np.maximum(sizes - 1, 1).astype(float))[1]
        self._sizes, self._halves = sizes.astype(np.uint64), (-(-bits // 2)).astype(np.uint64)
        self._keys = keys_of(seed)

    def __call__(self, ranges, index):
        keys = [_mixed(key ^ ranges.astype(np.uint64)) for key in self._keys]
        return _walked(index, self._sizes[ranges], self._halves[ranges], keys)


def keys_of(seed):
    """Return a key, uint64, for each round."""
    return [*np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)]


def _walked(places, n, half, keys):
    """Return the images of places, int64; `n`, `half` and keys are numbers or arrays alike."""
    out = _rounds(places.astype(np.uint64), half, keys)
    while (outside := out >= n).any():
        chosen = [x[outside] if np.ndim(x) else x for x in (half, *keys)]
        out[outside] = _rounds(out[outside], chosen[0], chosen[1:])
    return out.astype(np.int64)


def _rounds(x, half, keys):
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & mask
    for key in keys:
        left, right = right, (left ^ _mixed(right + key)) & mask
    return left << half | right


@functools.lru_cache(1024)
def permutation(n, *seed):
    """Return the `Permutation`, made once for all numbers that are asked of it in turn."""
    return Permutation(n, seed)


def _mixed(x):
    """Return 64 bits, each of which depends on every bit of `x` (uint64)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


IN_MEMORY = 2**20  # items; tables of more would take too much memory


class EpochTables:
    """Keep the tables of the last epoch that was asked for; of more than 2**20 items keep none.

    Args:
        num_items: int.
        make: function that returns the tables of an epoch.
    """

    def __init__(self, num_items, make):
        self._make = make if num_items <= IN_MEMORY else None
        self._kept = None, None

    def of(self, epoch):
        """Return the tables of an epoch, or None if there are too many items."""
        if self._make is None:
            return None
        kept = self._kept  # once: another thread may replace it
        if kept[0] != epoch:
            self._kept = kept = epoch, self._make(epoch)
        return kept[1]
