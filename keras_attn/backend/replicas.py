"""The replicas that train a model: their number, sums over them, and what each keeps for itself."""

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


def num_replicas():
    """How many replicas the strategy in scope has."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def num_shares():
    """Among how many devices a batch is shared out. On JAX variables are whole all the same."""
    if keras.backend.backend() == "tensorflow":
        return num_replicas()
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.num_model_replicas


def replicas_of(variable):
    """What each replica keeps of a variable that they write apart: variables of their own."""
    if keras.backend.backend() != "tensorflow":
        return [variable]
    import tensorflow as tf

    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return [variable]
    return list(value.distribute_strategy.experimental_local_results(value))
