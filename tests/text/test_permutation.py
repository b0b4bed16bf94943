"""A permutation of a range that is computed place by place."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import Permutation
from keras_attn.text.batches.permutation import Permutations


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 400), st.integers(0, 9))
def test_each_number_occurs_once(n, seed):
    numbers = Permutation(n, [seed, n])(np.arange(n))
    assert sorted(numbers.tolist()) == list(range(n))


def test_the_largest_range_is_invertible_on_a_sample():
    n = 2**62
    places = np.unique(np.random.default_rng(0).integers(0, n, 5003))
    numbers = Permutation(n, 7)(places)
    assert len(np.unique(numbers)) == len(places)
    assert numbers.min() >= 0 and numbers.max() < n


def test_a_place_depends_on_the_seed_and_on_nothing_else():
    one, other = Permutation(1009, [3, 5]), Permutation(1009, [3, 7])
    everything = one(np.arange(1009))
    assert one(11) == everything[11] == one(np.array([2, 11]))[1]
    # Of two random permutations of 1009 numbers, one place on average agrees.
    assert (other(np.arange(1009)) == everything).sum() < 10


def test_neighbours_go_anywhere():
    """Each tenth of the numbers goes to each tenth equally often, within five deviations."""
    n = 10_007
    numbers = Permutation(n, 1)(np.arange(n))
    counts = np.histogram2d(np.arange(n), numbers, bins=10)[0]
    assert (abs(counts - n / 100) < 5 * np.sqrt(n / 100)).all()


def test_small_ranges_have_every_order_equally_often():
    orders = collections.Counter(tuple(Permutation(4, seed)(np.arange(4))) for seed in range(960))
    assert set(orders) == set(itertools.permutations(range(4)))
    assert max(abs(count - 40) for count in orders.values()) < 5 * 40**0.5


def test_many_ranges_are_permuted_at_once():
    sizes = np.array([1, 2, 3, 64, 65, 257, 257])
    ranges = np.repeat(np.arange(7), sizes)
    index = np.concatenate([np.arange(n) for n in sizes])
    numbers = Permutations(sizes, [3, 5])(ranges, index)
    parts = np.split(numbers, np.cumsum(sizes))[:-1]
    for part, n in zip(parts, sizes.tolist(), strict=True):
        assert sorted(part.tolist()) == list(range(n))
    assert (parts[5] == parts[6]).sum() < 10  # ranges of one size have orders of their own
    assert Permutations(sizes, [3, 5])(np.array([4]), np.array([64])) == parts[4][64]


@pytest.mark.parametrize(
    "n, index", [(-1, []), (2**62 + 1, []), (2.5, []), (5, [5]), (5, -1), (5, 0.5)]
)
def test_errors(n, index):
    with pytest.raises(ValueError, match="Received"):
        Permutation(n, 0)(index)
