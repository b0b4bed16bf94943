"""Replicas of a `tf.distribute` strategy."""

import tensorflow as tf


def replica_sum(x):
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def num_shares():
    return num_replicas()


def replicas_of(variable):
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return [variable]
    return list(value.distribute_strategy.experimental_local_results(value))
