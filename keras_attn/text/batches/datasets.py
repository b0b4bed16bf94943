"""Batches made in Python, divided among processes and replicas, also as a `tf.data.Dataset`."""

from typing import NamedTuple

import keras
import numpy as np

from keras_attn.compat.distributed_dataset import set_num_batches


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


class Rows(NamedTuple):
    """The part of the rows of each batch that one of several processes feeds.

    A batch is filled with rows of zeros up to the next multiple of the replicas, then cut into
    equal parts. Processes whose devices hold one replica together feed the same part.

    Args:
        replicas: int. Devices that the rows are divided among.
        parts: int. Number of the parts.
        part: int. Index of this one.
    """

    replicas: int = 1
    parts: int = 1
    part: int = 0

    @classmethod
    def here(cls, distribution):
        """Return the rows of this process under a `keras.distribution.Distribution` or None."""
        if distribution is None:
            return cls()
        replicas = distribution.num_model_replicas
        parts = min(replicas, distribution.num_processes)
        return cls(replicas, parts, distribution.data_shard_id if parts > 1 else 0)

    def of(self, num_rows):
        """Return the range of rows of a batch of so many; those past its end are rows of zeros."""
        each = -(-num_rows // self.replicas) * self.replicas // self.parts
        return range(self.part * each, (self.part + 1) * each)

    def cut(self, batch):
        """Return the rows of a whole batch, a structure of arrays (B, ...)."""

        def rows_of(x):
            rows = self.of(len(x))
            x = np.asarray(x)[rows.start : rows.stop]
            return np.pad(x, [(0, len(rows) - len(x))] + [(0, 0)] * (x.ndim - 1))

        return batch if self.replicas == 1 else keras.tree.map_structure(rows_of, batch)


class RowBatches:
    """Batches of which each process makes its own rows only."""

    def batch(self, epoch, index, rows=Rows()):
        """Return a batch; `rows`, a `Rows`, selects the rows of one process: by default all."""
        raise NotImplementedError(f"{type(self).__name__} must define `batch`.")
