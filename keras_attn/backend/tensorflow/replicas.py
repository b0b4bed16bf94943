"""Replicas of a `tf.distribute` strategy."""

import tensorflow as tf


def replica_sum(x):
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def replica_gather(x):
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x, 0
    counts = context.all_gather(tf.shape(x)[:1], axis=0)
    before = tf.range(tf.size(counts)) < context.replica_id_in_sync_group
    return context.all_gather(x, axis=0), tf.reduce_sum(tf.where(before, counts, 0))


def num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def num_shares():
    return num_replicas()


def model_scope(model):
    return model.distribute_strategy.scope()


def replicas_of(variable):
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return [variable]
    return list(value.distribute_strategy.experimental_local_results(value))
