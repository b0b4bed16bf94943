"""Batches made in Python, divided among processes and replicas, also as a `tf.data.Dataset`."""

from typing import NamedTuple

import keras
import numpy as np

from keras_attn.compat.distributed_dataset import set_num_batches


def import_tensorflow():
    """Return TensorFlow; say what to do without it."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            "`as_dataset` makes a dataset of TensorFlow: pip install tensorflow, or give the "
            "batches themselves to `fit`, with shuffle=False."
        ) from error
    return tf


def dataset_of(one_pass, signature, num_batches):
    """Return a dataset of the batches of the generator function `one_pass`, of known cardinality.

    `one_pass(rows)` yields the `Rows` of each batch that this process feeds. Batches are structures
    of arrays (B, ...) whose `tf.TensorSpec`s, of whole batches, are the `signature`; a number of
    rows that is known there stays known.

    In the scope of a `tf.distribute` strategy the result is a `tf.distribute.DistributedDataset`,
    which `fit`, `evaluate` and `predict` also take: each replica gets its own rows of each batch,
    the first replica the first rows. If their number is no multiple of the replicas, the last
    replicas get fewer rows or none; only where it is known do rows of zeros make it one.

    In a distribution of Keras, on JAX, a dataset would feed each process the whole batch: a
    `ValueError`.
    """
    tf = import_tensorflow()
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

    # Rows of zeros would count in the mean over batches that `fit` shows as the loss.
    is_filled = all(spec.shape[0] is not None for spec in tf.nest.flatten(signature))

    def dataset_of_process(context):
        parts = context.num_input_pipelines
        rows = Rows(replicas, parts, context.input_pipeline_id, is_filled)
        number = replicas // parts

        def divided(*batch):
            batch = batch if len(batch) > 1 else batch[0]
            return tf.data.Dataset.range(number).map(
                lambda part: tf.nest.map_structure(lambda x: _part_of(x, part, number), batch)
            )

        return _prefetched(batches(rows).flat_map(divided))

    distributed = strategy.distribute_datasets_from_function(dataset_of_process)
    set_num_batches(distributed, num_batches)
    return distributed


def _part_of(x, part, number):
    """Return a part of the rows of a tensor (B, ...), one of `number`, the last ones shorter."""
    import tensorflow as tf

    each = -(-tf.shape(x, tf.int64)[0] // number)
    rows = x.shape[0] and x.shape[0] // number
    return tf.ensure_shape(x[part * each : (part + 1) * each], [rows, *x.shape[1:]])


def _prefetched(dataset):
    import tensorflow as tf

    options = tf.data.Options()
    # The autotuner has nothing to tune here, and `fit` would wait seconds for its thread.
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)


class Rows(NamedTuple):
    """The part of the rows of each batch that one of several processes feeds.

    A batch is cut into parts of equally many replicas. Processes whose devices hold one replica
    together feed the same part.

    Args:
        replicas: int. Devices that the rows are divided among.
        parts: int. Number of the parts.
        part: int. Index of this one.
        is_filled: bool. If True, rows of zeros fill a batch up to the next multiple of the
            replicas; else the last parts have fewer rows.
    """

    replicas: int = 1
    parts: int = 1
    part: int = 0
    is_filled: bool = True

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
        start, stop = self.part * each, (self.part + 1) * each
        return range(start, stop) if self.is_filled else range(num_rows)[start:stop]

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
