"""Batches made in Python as a `tf.data.Dataset`, shared out to the replicas there are."""

import keras
import numpy as np

from keras_attn.compat.distributed_dataset import set_num_batches


def dataset_of(one_pass, signature, num_batches):
    """A dataset of what the generator function `one_pass` yields, of known cardinality.

    In the scope of a `tf.distribute` strategy it is one that `fit`, `evaluate` and `predict` take
    as well, a `tf.distribute.DistributedDataset`: each replica gets its own rows of each batch,
    those of the first replica first, in one process or in several, which all must draw the same
    batches. Rows of zeros fill up a batch whose rows do not divide by the replicas.

    Args:
        one_pass: function of no arguments that gives an iterator of batches, structures of arrays
            whose first axis is the row.
        signature: the structure of `tf.TensorSpec`s of a batch. Where the number of rows is known
            it stays so.
        num_batches: int. Batches of a pass.
    """
    import tensorflow as tf

    def batches():
        return tf.data.Dataset.from_generator(one_pass, output_signature=signature)

    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return _ahead(batches().apply(tf.data.experimental.assert_cardinality(num_batches)))

    def parts_for_a_process(context):
        here = replicas // context.num_input_pipelines
        first = here * context.input_pipeline_id

        def parts(*batch):
            batch = batch if len(batch) > 1 else batch[0]
            return tf.nest.map_structure(lambda x: _parts(x, replicas)[first : first + here], batch)

        return _ahead(batches().map(parts).unbatch())

    distributed = strategy.distribute_datasets_from_function(parts_for_a_process)
    set_num_batches(distributed, num_batches)
    return distributed


def rows_to_feed(batch, distribution):
    """The rows of a batch that this process feeds to a backend other than TensorFlow.

    Args:
        batch: structure of arrays whose first axis is the row.
        distribution: the `keras.distribution.Distribution` that trains, or None.

    Returns:
        The structure, with rows of zeros up to the next multiple of the replicas; of several
        processes, the part of this one.
    """
    if distribution is None:
        return batch
    replicas, processes = distribution.num_model_replicas, distribution.num_processes

    def rows_of(x):
        x = np.pad(x, [(0, -len(x) % replicas)] + [(0, 0)] * (x.ndim - 1))
        return np.split(x, processes)[distribution.data_shard_id] if processes > 1 else x

    return keras.tree.map_structure(rows_of, batch)


def _parts(x, number):
    """The rows of a tensor (B, ...) in so many parts (N, B / N, ...), with rows of zeros if need be."""
    import tensorflow as tf

    rows, others = x.shape[0], x.shape[1:]
    missing = -tf.shape(x)[0] % number
    x = tf.pad(x, [[0, missing]] + [[0, 0]] * len(others))
    x = tf.reshape(x, tf.concat([[number, -1], tf.shape(x)[1:]], axis=0))
    return tf.ensure_shape(x, [number, None if rows is None else -(-rows // number), *others])


def _ahead(dataset):
    import tensorflow as tf

    options = tf.data.Options()
    # The autotuner has nothing to tune here, and `fit` would wait seconds for its thread.
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)
