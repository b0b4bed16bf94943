"""The number of batches of a `tf.distribute.DistributedDataset`.

Private: `_cardinality` and `_enable_get_next_as_optional` of the data set that
`tf.distribute.Strategy.distribute_datasets_from_function` returns. Holds for TensorFlow 2.21, which
keras_attn requires.
Upstream:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/distribute/input_lib.py
Remove when `distribute_datasets_from_function` takes the number of batches. TensorFlow otherwise
counts the elements of one pipeline, which are a replica's parts, or finds no number at all.
"""

import numpy as np


def set_num_batches(dataset, num_batches):
    """Set how many batches every replica reads from a distributed data set.

    The replicas then need not ask one another before each batch whether one is left. That question
    would also make a known number of rows an unknown one.
    """
    dataset._cardinality = np.int64(num_batches)
    dataset._enable_get_next_as_optional = False
