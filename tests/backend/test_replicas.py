import pytest
from keras import ops

from keras_attn.backend import replicas


def test_mean_over_the_real_units_of_all_replicas(monkeypatch):
    """Two replicas have one and four real units; Keras halves the sum of their losses."""
    monkeypatch.setattr(replicas, "num_replicas", lambda: 2)
    monkeypatch.setattr(replicas, "replica_sum", lambda count: ops.array(5.0))
    parts = [ops.array([3.0]), ops.array([1.0, 2.0, 2.0, 4.0])]
    means = [replicas.mean_over_replicas(part, float(len(part))) for part in parts]
    assert float(sum(means)) / 2 == pytest.approx(12 / 5)


def test_mean_over_no_real_unit_is_zero():
    assert float(replicas.mean_over_replicas(ops.zeros((3,)), ops.array(0.0))) == 0
