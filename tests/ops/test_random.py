"""Random numbers that depend on their seed only."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.ops import random
from keras_attn.ops.random import (
    RepeatedSeed,
    replica_seed,
    split_seed,
    stateless_normal,
)


def test_stateless_normal_numbers_are_standard_and_differ_by_seed():
    seed = tf.constant([3, 5])
    x = np.asarray(stateless_normal((200, 50), seed))
    assert x.dtype == "float32" and abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.03
    assert abs(np.mean(np.abs(x) < 1) - 0.683) < 0.02
    np.testing.assert_array_equal(stateless_normal((200, 50), seed), x)
    for other in ([3, 6], [4, 5]):
        numbers = np.asarray(stateless_normal((200, 50), tf.constant(other)))
        assert abs(np.corrcoef(numbers.ravel(), x.ravel())[0, 1]) < 0.05


@pytest.mark.slow
def test_stateless_normal_numbers_are_the_same_under_xla():
    seed = tf.constant([3, 5])
    compiled = tf.function(lambda: stateless_normal((4, 3), seed), jit_compile=True)
    np.testing.assert_allclose(compiled(), stateless_normal((4, 3), seed), rtol=1e-5, atol=1e-6)


def test_a_repeated_seed_gives_the_same_numbers_at_each_draw():
    generator = RepeatedSeed(tf.constant([1, 2]))
    first, second = (keras.random.uniform((5,), seed=generator) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_split_seed_gives_each_part_another_seed():
    seeds = np.asarray(split_seed(tf.constant([7, 9]), 4))
    assert seeds.shape == (4, 2) and len({tuple(seed) for seed in seeds}) == 4
    following = np.asarray(split_seed(tf.constant([8, 9]), 4))
    assert not {tuple(seed) for seed in seeds} & {tuple(seed) for seed in following}


def test_replicas_have_seeds_that_no_other_part_of_a_call_has(monkeypatch):
    """Seeds of chunks and of tiles are derived from the call's; so are those of replicas."""
    seed = tf.constant([7, 9], "int64")
    assert replica_seed(seed) is seed
    seeds = [*np.asarray(split_seed(seed, 8))]
    for number in range(1, 8):
        monkeypatch.setattr(random, "replica_number", lambda number=number: tf.constant(number))
        own = replica_seed(seed)
        seeds += [*np.asarray(split_seed(own, 8))]
        assert own.dtype == seed.dtype
    assert len({tuple(each.tolist()) for each in seeds}) == 64


@pytest.mark.parametrize("bits", [9, 15, 16])
def test_a_shift_to_the_right_fills_with_zeros(bits):
    numbers = np.array([0, 1, 2**31 - 1, -1, -(2**31), -123456789, 123456789], "int32")
    shifted = np.asarray(random._shift(tf.constant(numbers), bits))
    np.testing.assert_array_equal(shifted, numbers.view("uint32") >> bits)
