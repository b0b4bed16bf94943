import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.ops import sorting
from keras_attn.ops.random import stateless_normal
from keras_attn.patterns import lsh as hashing
from keras_attn.patterns.lsh import default_buckets, hash_directions

B, N, S, H, R = 2, 3, 40, 8, 3
X = oracles.random(B, N, S, H)


def buckets_of(x, num_buckets=16, num_rounds=R, seed=1):
    return hash_directions(tf.constant(x), num_buckets, num_rounds, seed).numpy()


def test_a_bucket_is_where_the_vector_points_furthest():
    axes = stateless_normal((N, H, R * 8), tf.constant([1, 0])).numpy().astype("float64")
    buckets = buckets_of(X)
    assert buckets.shape == (B, N, R, S) and buckets.dtype == "int32"
    for b, n, r, s in np.ndindex(buckets.shape):
        along = X[b, n, s].astype("float64") @ axes[n, :, r * 8 : r * 8 + 8]
        assert buckets[b, n, r, s] == np.argmax([*along, *-along])


@pytest.mark.parametrize("num_buckets", [2, 130])
def test_directions_share_a_bucket_whatever_the_length(num_buckets):
    buckets = buckets_of(X, num_buckets)
    np.testing.assert_array_equal(buckets_of(1000 * X, num_buckets), buckets)
    assert (buckets_of(-X, num_buckets) != buckets).all()


@pytest.mark.parametrize("num_buckets", [130, 1000])
def test_many_buckets_are_pairs(num_buckets):
    buckets = buckets_of(oracles.random(1, 1, 20000, H), num_buckets, 4)
    first, second = hashing._factors(num_buckets)
    assert first % 2 == second % 2 == 0
    assert num_buckets <= first * second < num_buckets + 2 * first
    assert first + second < 3 * math.sqrt(num_buckets) + 3
    assert 0 <= buckets.min() and buckets.max() < first * second
    assert len(np.unique(buckets)) > 0.6 * num_buckets


def test_two_buckets_are_shared_as_often_as_the_angle_says():
    # A random plane separates two vectors with probability angle / pi.
    angles = np.array([0.1, 0.5, 1.0, 1.5, 2.5])
    x = np.concatenate([[np.zeros_like(angles)], [angles]])
    x = np.stack([np.cos(x), np.sin(x)], axis=-1)  # (2, angles, 2)
    x = np.transpose(x, (1, 0, 2)).astype("float32")[:, None]  # (angles, 1, 2, 2)
    buckets = buckets_of(x, 2, 20000)
    shared = (buckets[..., 0] == buckets[..., 1]).mean(axis=(1, 2))
    np.testing.assert_allclose(shared, 1 - angles / math.pi, atol=0.015)


def test_heads_rounds_and_seeds_hash_differently_and_rows_alike():
    x = np.broadcast_to(X[:1, :1], (B, N, S, H))
    buckets = buckets_of(x)
    np.testing.assert_array_equal(buckets[0], buckets[1])
    for other in (buckets[0, 1, 0], buckets[0, 0, 1], buckets_of(x, seed=2)[0, 0, 0]):
        assert (buckets[0, 0, 0] != other).mean() > 0.5
    np.testing.assert_array_equal(buckets_of(x), buckets)


def test_half_precision_is_hashed_in_float32():
    x = tf.cast(X, "bfloat16")
    np.testing.assert_array_equal(
        hash_directions(x, 16, R, 1), buckets_of(tf.cast(x, "float32").numpy())
    )


def test_two_buckets_for_each_chunk():
    assert [default_buckets(n, 8) for n in (1, 8, 15, 16, 800)] == [2, 2, 2, 4, 200]
    assert [int(default_buckets(tf.constant(n), 8)) for n in (1, 15, 800)] == [2, 2, 200]


@pytest.mark.parametrize("jit_compile", [False, slow(True)])
def test_equal_numbers_keep_their_order(jit_compile):
    numbers = np.random.default_rng(0).integers(0, 4, (2, 3, 101)).astype("int32")
    expected = np.argsort(numbers, axis=-1, kind="stable")
    sort = tf.function(sorting.sort_order, jit_compile=jit_compile)
    order, inverse = sort(tf.constant(numbers))
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(
        np.take_along_axis(inverse.numpy(), expected, -1),
        np.broadcast_to(np.arange(101), numbers.shape),
    )


def test_permuting_there_and_back():
    order = np.stack(
        [[np.random.default_rng([b, n]).permutation(S) for n in range(N)] for b in range(B)]
    ).astype("int32")
    starts = sorting.row_starts(X).numpy()
    there, back = order + starts, np.argsort(order, axis=-1).astype("int32") + starts
    x, upstream = tf.constant(X), oracles.random(B, N, S, H, seed=1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        permuted = sorting.permute(x, there, back)
        total = tf.reduce_sum(permuted * upstream)
    gradient = tape.gradient(total, x).numpy()
    for b, n, s in np.ndindex(B, N, S):
        np.testing.assert_array_equal(permuted[b, n, s], X[b, n, order[b, n, s]])
        np.testing.assert_array_equal(gradient[b, n, order[b, n, s]], upstream[b, n, s])
    np.testing.assert_array_equal(sorting.permute(permuted, back, there), X)


def test_permuting_copies_sums_their_gradients():
    rows, copies = X[0, 0, :5], 3
    there = np.random.default_rng(1).permutation(15).astype("int32")
    back = np.argsort(there).astype("int32")
    x, upstream = tf.constant(rows), oracles.random(15, H, seed=1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        permuted = sorting.permute(x, there, back, copies=copies)
        total = tf.reduce_sum(permuted * upstream)
    expected = np.zeros_like(rows)
    for place, copy in enumerate(there):
        np.testing.assert_array_equal(permuted[place], rows[copy // copies])
        expected[copy // copies] += upstream[place]
    np.testing.assert_allclose(tape.gradient(total, x), expected, atol=1e-6)
