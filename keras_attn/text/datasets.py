"""Batches made in Python as a `tf.data.Dataset`, divided among the replicas."""

import keras
import numpy as np

from keras_attn.compat.distributed_dataset import set_num_batches


def dataset_of(one_pass, signature, num_batches):
    """Return a dataset of the batches of the generator function `one_pass`, of known cardinality.

    Batches are structures of arrays (B, ...) whose `tf.TensorSpec`s are the `signature`; a number
    of rows that is known there stays known.

    In the scope of a `tf.distribute` strategy the result is a `tf.distribute.DistributedDataset`,
    which `fit`, `evaluate` and `predict` also take: each replica gets its own rows of each batch,
    the first replica the first rows. Several processes must all make the same batches. Rows of
    zeros fill a batch whose number of rows is no multiple of the replicas.
    """
    import tensorflow as tf

    def batches():
        return tf.data.Dataset.from_generator(one_pass, output_signature=signature)

    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return _prefetched(batches().apply(tf.data.experimental.assert_cardinality(num_batches)))

    def dataset_of_process(context):
        here = replicas // context.num_input_pipelines
        first = here * context.input_pipeline_id

        def rows_of(x):
            return _split_rows(x, replicas)[first : first + here]

        def rows_of_process(*batch):
            return tf.nest.map_structure(rows_of, batch if len(batch) > 1 else batch[0])

        return _prefetched(batches().map(rows_of_process).unbatch())

    distributed = strategy.distribute_datasets_from_function(dataset_of_process)
    set_num_batches(distributed, num_batches)
    return distributed


def rows_to_feed(batch, distribution):
    """Return the rows of a batch that this process feeds to a backend other than TensorFlow.

    A `keras.distribution.Distribution` adds rows of zeros up to the next multiple of its replicas;
    with several processes the result is the part of this process. Processes whose devices hold one
    replica together feed the same rows.
    """
    if distribution is None:
        return batch
    replicas = distribution.num_model_replicas
    shards = min(replicas, distribution.num_processes)

    def rows_of(x):
        x = np.pad(x, [(0, -len(x) % replicas)] + [(0, 0)] * (x.ndim - 1))
        return np.split(x, shards)[distribution.data_shard_id] if shards > 1 else x

    return keras.tree.map_structure(rows_of, batch)


def _split_rows(x, number):
    """Split the rows of a tensor (B, ...) into parts (N, B / N, ...), filled with rows of zeros."""
    import tensorflow as tf

    rows, others = x.shape[0], x.shape[1:]
    missing = -tf.shape(x)[0] % number
    x = tf.pad(x, [[0, missing]] + [[0, 0]] * len(others))
    x = tf.reshape(x, tf.concat([[number, -1], tf.shape(x)[1:]], axis=0))
    return tf.ensure_shape(x, [number, None if rows is None else -(-rows // number), *others])


def _prefetched(dataset):
    import tensorflow as tf

    options = tf.data.Options()
    # The autotuner has nothing to tune here, and `fit` would wait seconds for its thread.
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)
