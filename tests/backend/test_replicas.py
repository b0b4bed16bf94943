import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attn.backend import replicas


def test_mean_over_the_real_units_of_all_replicas(monkeypatch):
    """Two replicas have one and four real units; each has the mean over all five.

    The gradient is that of its own units: Keras halves the sum of the replicas' losses.
    """
    parts = [tf.constant([3.0]), tf.constant([1.0, 2.0, 2.0, 4.0])]
    for part in parts:
        sums = iter([tf.constant(5.0), tf.constant(12 / 5)])  # the units, then their values
        monkeypatch.setattr(replicas, "num_replicas", lambda: 2)
        monkeypatch.setattr(replicas, "replica_sum", lambda x, sums=sums: next(sums))
        with tf.GradientTape() as tape:
            tape.watch(part)
            mean = replicas.mean_over_replicas(part, float(len(part)))
        assert float(mean) == pytest.approx(12 / 5)
        np.testing.assert_allclose(tape.gradient(mean, part), np.full(len(part), 2 / 5))


def test_the_share_of_a_sum_has_the_gradient_of_this_replica(monkeypatch):
    monkeypatch.setattr(replicas, "num_replicas", lambda: 3)
    monkeypatch.setattr(replicas, "replica_sum", lambda x: x + 11.0)
    x = tf.constant(7.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        share = replicas.share_of_sum(5.0 * x)
    assert float(share) == pytest.approx((35 + 11) / 3) and float(tape.gradient(share, x)) == 5.0


def test_mean_over_no_real_unit_is_zero():
    assert float(replicas.mean_over_replicas(ops.zeros((3,)), ops.array(0.0))) == 0
