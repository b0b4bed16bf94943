"""Losses of replicas that take turns, as those of a `MirroredStrategy` do at a reduction."""

import keras
import pytest
from keras import ops

from keras_attn.compat import replica_losses
from keras_attn.compat.replica_losses import ReplicaLosses


class LossLayer(keras.layers.Layer):
    def call(self, x):
        self.add_loss(ops.sum(x))
        return x


class LossLayerPerReplica(ReplicaLosses, LossLayer):
    pass


def take_turns(layer, replica):
    """Let both replicas begin a call, then add a loss, then read their losses."""
    for number in (0, 1):
        replica(number)
        layer._clear_losses()
    for number in (0, 1):
        replica(number)
        layer.add_loss(ops.array(float(number + 1)))
    losses = []
    for number in (0, 1):
        replica(number)
        losses.append([float(loss) for loss in layer.losses])
    return losses


@pytest.fixture
def replica(monkeypatch):
    return lambda number: monkeypatch.setattr(replica_losses, "_replica", lambda: number)


def test_each_replica_reads_its_own_losses(replica):
    layer = LossLayerPerReplica()
    assert take_turns(layer, replica) == [[1.0], [2.0]]
    assert take_turns(layer, replica) == [[1.0], [2.0]]  # no loss is left from before


def test_keras_mixes_the_losses_of_replicas(replica):
    assert take_turns(LossLayer(), replica) != [[1.0], [2.0]], (
        "compat/replica_losses.py: Keras now keeps losses apart by replica; remove the shim"
    )


def test_a_single_replica_adds_losses_as_any_layer():
    layer = LossLayerPerReplica()
    for _ in range(2):
        layer(ops.ones((2, 3)))
        assert [float(loss) for loss in layer.losses] == [6.0]
    with keras.StatelessScope(collect_losses=True) as scope:
        layer(ops.ones((2, 3)))
        assert [float(loss) for loss in layer.losses] == [6.0]
    assert len(scope.losses) == 1


def test_losses_of_float64_have_the_precision_of_the_main_loss(replica):
    """Keras cannot add them to it else."""
    replica(1)
    layer = LossLayerPerReplica(dtype="float64")
    layer._clear_losses()
    layer.add_loss(ops.ones((), "float64"))
    assert [loss.dtype for loss in layer.losses] == ["float32"]
