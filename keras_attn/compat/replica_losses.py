"""The losses that a layer adds, kept apart by replica under `tf.distribute`.

Private: `keras.layers.Layer._get_own_losses` and `_clear_losses`, and
`keras.src.backend.common.stateless_scope.in_stateless_scope`. Holds for Keras 3.15, which
keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/layer.py and
https://github.com/keras-team/keras/blob/master/keras/src/backend/common/stateless_scope.py
Remove when a Keras layer keeps one list of losses per replica.
"""

import weakref

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope

# layer -> number of the replica -> losses
_losses_of = weakref.WeakKeyDictionary()


class ReplicaLosses:
    """Layer mixin that keeps apart the losses added in different replicas.

    Keras has one list for all replicas, and each replica empties it when its call begins. If the
    replicas wait for each other during the call, as a sum over replicas makes them, one replica
    reads the losses of another, to which its own gradient has no path.
    """

    def add_loss(self, loss):
        replica = _replica()
        if replica is None:
            super().add_loss(loss)
        else:
            losses = _losses_of.setdefault(self, {}).setdefault(replica, [])
            # In the precision of the main loss, whatever that of the layer.
            floatx = keras.config.floatx()
            losses.extend(keras.ops.cast(each, floatx) for each in keras.tree.flatten(loss))

    def _get_own_losses(self):
        replica = _replica()
        if replica is None:
            return super()._get_own_losses()
        return list(_losses_of.get(self, {}).get(replica, ()))

    def _clear_losses(self):
        super()._clear_losses()
        _losses_of.get(self, {}).pop(_replica(), None)


def _replica():
    """Return the number of the current replica; None if there is only one."""
    # A stateless scope collects the losses itself, and belongs to one replica.
    if keras.backend.backend() != "tensorflow" or in_stateless_scope():
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    number = context.replica_id_in_sync_group
    return number if isinstance(number, int) else int(tf.get_static_value(number))
