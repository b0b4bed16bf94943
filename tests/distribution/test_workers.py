"""Which process of a cluster this one is."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.callbacks import Resume
from keras_attn.distribution.workers import worker_of


def model_of(tasks, task_type, task_id):
    """Return a model made in such a process of such a cluster."""
    cluster = tf.train.ClusterSpec({job: ["localhost:1"] * count for job, count in tasks.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=task_type, task_id=task_id
    )
    strategy = mock.Mock(tf.distribute.MultiWorkerMirroredStrategy, cluster_resolver=resolver)
    return mock.Mock(distribute_strategy=strategy)


@pytest.mark.parametrize(
    ("tasks", "task", "expected"),
    [
        ({"worker": 3}, ("worker", 0), (0, 3)),
        ({"worker": 3}, ("worker", 2), (2, 3)),
        ({"chief": 1, "worker": 2}, ("chief", 0), (0, 3)),
        ({"chief": 1, "worker": 2}, ("worker", 1), (2, 3)),
        ({"worker": 1}, ("worker", 0), (0, 1)),
        ({}, (None, None), (0, 1)),
    ],
)
def test_worker_of_gives_index_and_number_of_workers(tasks, task, expected):
    assert worker_of(model_of(tasks, *task)) == expected


@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, tf.distribute.MirroredStrategy])
def test_one_process_is_worker_0_of_1(strategy, tmp_path):
    with strategy().scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    assert worker_of(model) == (0, 1)


class Kill(keras.callbacks.Callback):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.batch:
            raise KeyboardInterrupt


def test_a_worker_resumes_from_the_newest_checkpoint_of_all(tmp_path, monkeypatch):
    """The second of two was killed later, and has saved once more than the first."""

    def start(worker):
        monkeypatch.setattr("keras_attn.callbacks.resume.worker_of", lambda model: (worker, 2))
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        resume = Resume(tmp_path, every_steps=1)
        return model, resume, resume.restore(model)

    x = np.ones((5, 1))
    weights = []
    for worker in (0, 1):
        model, resume, position = start(worker)
        assert position == (0, 0)
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, x, batch_size=1, verbose=0, callbacks=[resume, Kill(3 + worker)])
        weights.append(model.get_weights()[0])
    for worker in (0, 1):
        model, _, position = start(worker)
        assert position == (0, 3)
        assert (model.get_weights()[0] == weights[0]).all() == (worker == 0)
