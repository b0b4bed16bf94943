"""The losses that a layer adds, under `tf.distribute`."""

import weakref

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope

# What the replicas added: layer -> number of the replica -> losses.
_added = weakref.WeakKeyDictionary()


class ReplicaLosses:
    """Mixed into a layer, keeps apart the losses that it adds in different replicas.

    Keras has one list for all replicas, which each of them empties as its call begins. Where they
    wait for each other in between, as to sum something up over all of them (a loss may, too), one
    replica so reads the losses of another, to which its own gradient knows no way.
    """

    def add_loss(self, loss):
        replica = _replica()
        if replica is None:
            super().add_loss(loss)
        else:
            losses = _added.setdefault(self, {}).setdefault(replica, [])
            losses.extend(keras.tree.flatten(loss))

    def _get_own_losses(self):
        replica = _replica()
        if replica is None:
            return super()._get_own_losses()
        return list(_added.get(self, {}).get(replica, ()))

    def _clear_losses(self):
        super()._clear_losses()
        _added.get(self, {}).pop(_replica(), None)


def _replica():
    """The number of the replica that asks; None where there is only one."""
    # A scope collects losses itself; it is one replica's.
    if keras.backend.backend() != "tensorflow" or in_stateless_scope():
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    number = context.replica_id_in_sync_group
    return number if isinstance(number, int) else int(tf.get_static_value(number))
