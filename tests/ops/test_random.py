"""Random numbers that depend on their seed only."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.ops.random import RepeatedSeed, split_seed, stateless_normal


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
