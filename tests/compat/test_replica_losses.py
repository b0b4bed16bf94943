"""Losses of replicas that take turns, as those of a `MirroredStrategy` do where they meet."""

import keras
import pytest
from keras import ops

from keras_attn.compat import replica_losses
from keras_attn.compat.replica_losses import ReplicaLosses


class Plain(keras.layers.Layer):
    def call(self, x):
        self.add_loss(ops.sum(x))
        return x


class Kept(ReplicaLosses, Plain):
    pass


def take_turns(layer, replica):
    """Both begin their calls, both add a loss, then both read theirs."""
    for number in (0, 1):
        replica(number)
        layer._clear_losses()
    for number in (0, 1):
        replica(number)
        layer.add_loss(ops.array(float(number + 1)))
    found = []
    for number in (0, 1):
        replica(number)
        found.append([float(loss) for loss in layer.losses])
    return found


@pytest.fixture
def replica(monkeypatch):
    return lambda number: monkeypatch.setattr(replica_losses, "_replica", lambda: number)


def test_each_replica_reads_its_own(replica):
    layer = Kept()
    assert take_turns(layer, replica) == [[1.0], [2.0]]
    assert take_turns(layer, replica) == [[1.0], [2.0]]  # nothing is left from the last time


def test_keras_mixes_them(replica):
    """What the class is for; if this fails, Keras has learnt it and the class may go."""
    assert take_turns(Plain(), replica) != [[1.0], [2.0]]


def test_alone_it_is_a_layer_as_any_other():
    layer = Kept()
    for _ in range(2):
        layer(ops.ones((2, 3)))
        assert [float(loss) for loss in layer.losses] == [6.0]
    with keras.StatelessScope(collect_losses=True) as scope:
        layer(ops.ones((2, 3)))
        assert [float(loss) for loss in layer.losses] == [6.0]
    assert len(scope.losses) == 1
