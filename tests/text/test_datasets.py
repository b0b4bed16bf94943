"""Which rows each replica and each process gets of a batch."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.text import TokenBatches
from keras_attn.text.batches.datasets import Rows, dataset_of


class Sharing(tf.distribute.OneDeviceStrategy):
    """Two processes of three replicas each, of which this is the one `index`."""

    def __init__(self, index):
        super().__init__("CPU:0")
        self.index = index

    num_replicas_in_sync = 6

    def distribute_datasets_from_function(self, function):
        self.dataset = function(tf.distribute.InputContext(2, self.index, 6))
        return SimpleNamespace()


def parts_of(batches, signature):
    """Return the rows of each of six replicas, by the number of the batch."""
    parts = []
    for index in range(2):
        strategy = Sharing(index)
        with strategy.scope():
            made = dataset_of(lambda rows: map(rows.cut, batches), signature, len(batches))
            assert made._cardinality == len(batches)
            parts.append([part.numpy() for part in strategy.dataset])
    return [[p for part in parts for p in part[3 * i : 3 * i + 3]] for i in range(len(batches))]


def test_rows_are_dealt_out_in_order_and_none_is_added():
    """A row of zeros would count in the loss that `fit` shows, the mean over batches by rows."""
    rows = 7
    batches = [np.arange(1, 2 * rows + 1).reshape(rows, 2), np.full((6, 3), 9)]
    parts = parts_of(batches, tf.TensorSpec((None, None), tf.int64))
    assert [len(each) for each in parts] == [6, 6]
    assert [part.shape for part in parts[0]] == [(n, 2) for n in (2, 2, 2, 1, 0, 0)]
    np.testing.assert_array_equal(np.concatenate(parts[0]), batches[0])
    assert all(part.shape == (1, 3) for part in parts[1])


def test_known_numbers_of_rows_stay_known_and_structures_whole():
    strategy = Sharing(0)
    spec = {"ids": tf.TensorSpec((7, 2), tf.int32), "reset": tf.TensorSpec((7,), tf.bool)}
    batch = {"ids": np.ones((7, 2), "int32"), "reset": np.ones(7, bool)}, np.ones(7, "float32")
    with strategy.scope():
        dataset_of(lambda rows: iter([rows.cut(batch)]), (spec, tf.TensorSpec((7,))), 1)
    inputs, labels = strategy.dataset.element_spec
    assert inputs["ids"].shape == (2, 2) and inputs["reset"].shape == (2,) and labels.shape == (2,)
    *_, (inputs, labels) = strategy.dataset  # the third replica's: two rows of seven
    assert inputs["reset"].dtype == tf.bool and labels.numpy().tolist() == [1, 1]


def distribution(processes, index):
    """A `keras.distribution.DataParallel` of so many processes with two devices each."""
    return SimpleNamespace(
        num_model_replicas=2 * processes, num_processes=processes, data_shard_id=index
    )


def test_rows_to_feed_to_other_backends():
    batch = {"ids": np.arange(1, 11).reshape(5, 2)}, np.ones(5)
    assert Rows.here(None).cut(batch) is batch
    alone, labels = Rows.here(distribution(1, 0)).cut(batch)
    assert alone["ids"].shape == (6, 2) and labels.tolist() == [1] * 5 + [0]
    parts = [Rows.here(distribution(2, index)).cut(batch)[0]["ids"] for index in range(2)]
    assert [len(part) for part in parts] == [4, 4]
    together = np.concatenate(parts)
    assert np.array_equal(together[:5], batch[0]["ids"]) and not together[5:].any()


@pytest.mark.parametrize("replicas, processes", [(1, 2), (2, 4), (6, 2)])
def test_the_processes_of_one_replica_feed_the_same_rows(replicas, processes):
    """As where a model axis spans processes; Keras computes the number of the part."""
    rows, parts = np.arange(1, 8), []
    for process in range(processes):
        place = SimpleNamespace(
            num_model_replicas=replicas, num_processes=processes, _process_id=process
        )
        place.data_shard_id = keras.distribution.ModelParallel.data_shard_id.fget(place)
        parts.append(Rows.here(place).cut(rows))
    alike = max(processes // replicas, 1)
    assert all(np.array_equal(part, parts[i // alike * alike]) for i, part in enumerate(parts))
    together = np.concatenate(parts[::alike])
    assert np.array_equal(together[:7], rows) and not together[7:].any()


def test_in_a_distribution_of_keras_batches_are_given_themselves(monkeypatch):
    batches = TokenBatches([[5]], [[6]])
    monkeypatch.setattr(keras.distribution, "distribution", lambda: object())
    with pytest.raises(ValueError, match="give the batches themselves to `fit`"):
        batches.as_dataset()
