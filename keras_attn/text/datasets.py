"""Batches made in Python as a `tf.data.Dataset`, divided among the replicas."""

import keras

from keras_attn.compat.distributed_dataset import set_num_batches
from keras_attn.text.batch_rows import Rows


def dataset_of(one_pass, signature, num_batches):
    """Return a dataset of the batches of the generator function `one_pass`, of known cardinality.

    `one_pass(rows)` yields the `Rows` of each batch that this process feeds. Batches are structures
    of arrays (B, ...) whose `tf.TensorSpec`s, of whole batches, are the `signature`; a number of
    rows that is known there stays known.

    In the scope of a `tf.distribute` strategy the result is a `tf.distribute.DistributedDataset`,
    which `fit`, `evaluate` and `predict` also take: each replica gets its own rows of each batch,
    the first replica the first rows. Rows of zeros fill a batch whose number of rows is no multiple
    of the replicas.

    In a distribution of Keras, on JAX, a dataset would feed each process the whole batch: a
    `ValueError`.
    """
    import tensorflow as tf

    if keras.distribution.distribution() is not None:
        raise ValueError(
            "In a distribution of Keras give the batches themselves to `fit`, with shuffle=False: "
            "each process then makes its rows only. Received: a call of `as_dataset`."
        )

    def batches(rows):
        def spec_of(spec):
            size = spec.shape[0]
            return tf.TensorSpec([size and len(rows.of(size)), *spec.shape[1:]], spec.dtype)

        specs = tf.nest.map_structure(spec_of, signature)
        return tf.data.Dataset.from_generator(lambda: one_pass(rows), output_signature=specs)

    strategy = tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        counted = batches(Rows()).apply(tf.data.experimental.assert_cardinality(num_batches))
        return _prefetched(counted)

    def dataset_of_process(context):
        parts = context.num_input_pipelines
        rows = Rows(replicas, parts, context.input_pipeline_id)

        def divided(*batch):
            batch = batch if len(batch) > 1 else batch[0]
            return tf.nest.map_structure(lambda x: _split_rows(x, replicas // parts), batch)

        return _prefetched(batches(rows).map(divided).unbatch())

    distributed = strategy.distribute_datasets_from_function(dataset_of_process)
    set_num_batches(distributed, num_batches)
    return distributed


def _split_rows(x, number):
    """Split the rows of a tensor (B, ...) into equal parts (N, B / N, ...)."""
    import tensorflow as tf

    rows, others = x.shape[0], x.shape[1:]
    x = tf.reshape(x, tf.concat([[number, -1], tf.shape(x)[1:]], axis=0))
    return tf.ensure_shape(x, [number, None if rows is None else rows // number, *others])


def _prefetched(dataset):
    import tensorflow as tf

    options = tf.data.Options()
    # The autotuner has nothing to tune here, and `fit` would wait seconds for its thread.
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)
