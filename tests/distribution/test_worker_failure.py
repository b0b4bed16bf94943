"""A worker that is killed in the middle of an epoch, and what the other one then says."""

import os
import signal

import pytest
from fork_server import ROOT, ForkedPython
from other_backend import needs_jax

from keras_attn.distribution import worker_failure_message
from recipes.common.machine import cluster_settings

# Trains for as long as it is let; the second of two workers kills itself after some steps.
PROGRAM = """
import os, signal, sys
import keras, numpy as np
from keras_attn.distribution import worker_failure_message, strategy
from keras_attn.text.batches.datasets import Rows

class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 20 and sys.argv[1] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

class Endless(keras.utils.PyDataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        return Rows.here(keras.distribution.distribution()).cut(batch)

place = strategy("multi_worker")
with place.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    batch = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
try:
    model.fit(Endless(), verbose=0, callbacks=[Killed()], shuffle=False)
except Exception as error:
    print(worker_failure_message(error), flush=True)
    os._exit(75)
"""


# On TensorFlow: tests/recipes/test_multi_worker.py.
@pytest.mark.slow
@needs_jax
def test_the_surviving_worker_reports_the_failure_and_exits():
    workers = [
        ForkedPython(
            *("-c", PROGRAM, index),
            backend="jax",
            environment={**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": config},
        )
        for index, config in enumerate(cluster_settings(2))
    ]
    try:
        output, errors = workers[0].communicate(timeout=300)
        workers[1].communicate(timeout=300)
    finally:
        for worker in workers:
            worker.kill()
    assert workers[1].returncode == -signal.SIGKILL
    assert workers[0].returncode == 75, errors[-3000:]
    assert "Another worker of this run is gone" in output


def test_other_errors_give_no_message():
    import tensorflow as tf

    assert worker_failure_message(ValueError("Collective ops is aborted")) is None
    assert worker_failure_message(tf.errors.UnavailableError(None, None, "no such host")) is None
    lost = tf.errors.AbortedError(None, None, "Collective ops is aborted by: something")
    assert "Start all workers again" in worker_failure_message(lost)
