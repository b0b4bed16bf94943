"""Sums over the replicas of a `tf.distribute` strategy."""

import keras


def replica_sum(x):
    """The sum of `x` over all replicas, the same on each; `x` itself where there is only one.

    Outside a replica (in the strategy's scope, say, where Keras builds the model symbolically)
    there is nothing to add up either, and `x` comes back.
    """
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
