"""Trains a model whose weights are divided among devices; run by test_sharded.py on JAX.

    python sharded.py DIRECTORY DATA MODEL [steps N | half N]

The mesh is of DATA times MODEL devices, of one process or of those of TF_CONFIG; with a "z" after
DATA the data axis divides weights too. The process ends itself, and does not save, before step N of
this start, or in the middle of writing its N-th file. One that is not ended writes the end's
weights. Prints the position at which it resumes.
"""

import itertools
import json
import os
import signal
import sys

import jax
import keras
import numpy as np
from kills import die_in_writing

from keras_attn.backend.replicas import whole_value
from keras_attn.callbacks import AverageCheckpoints, Resume, WithoutTrainEnd
from keras_attn.callbacks.resume import wait_for_writes
from keras_attn.distribution import strategy
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.models import gpt
from keras_attn.text.batches.datasets import Rows

V, T, EPOCHS, BATCHES = 16, 5, 3, 4


class Batches(keras.utils.PyDataset):
    def __init__(self, epoch, first=0):
        super().__init__()
        self.epoch, self.first = epoch, first

    def __len__(self):
        return BATCHES - self.first

    def __getitem__(self, index):
        rng = np.random.default_rng([self.epoch, self.first + index])
        ids = rng.integers(1, V, (8, T + 1))
        batch = {"token_ids": ids[:, :-1]}, ids[:, 1:]
        return Rows.here(keras.distribution.distribution()).cut(batch)


class Die(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = itertools.count(steps, -1)

    def on_train_batch_begin(self, batch, logs=None):
        if next(self.left) == 0:
            wait_for_writes()
            os.kill(os.getpid(), signal.SIGKILL)


def place(data, model):
    divides_weights = data.endswith("z")
    sizes = int(data.rstrip("z")), int(model)
    if "TF_CONFIG" in os.environ:
        strategy("multi_worker")
    elif sizes == (1, 1):
        return
    mesh = keras.distribution.DeviceMesh(sizes, ("batch", "model"))
    other = "batch" if divides_weights else None
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*token_embedding.*/table"] = ("model", other)
    layouts[".*intermediate/kernel"] = (other, "model")
    layouts[".*query_kernel"] = (other, "model", None)
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
        )
    )


def main(directory, data, model, way=None, number=None):
    place(data, model)
    keras.utils.set_random_seed(3)
    model = gpt(V, 1, 4, 8, 16, dropout=0.1, max_length=T)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), LabelSmoothedCrossentropy(0.0))
    resume = Resume(os.path.join(directory, "checkpoint"), every_steps=1)
    average = AverageCheckpoints(os.path.join(directory, "average"), last=3)
    epoch, batch = resume.restore(model)
    print(json.dumps([epoch, batch]), flush=True)
    callbacks = [average, resume]
    if way == "steps":
        callbacks.append(Die(int(number)))
    elif way == "half":
        die_in_writing(int(number))
    while epoch < EPOCHS:
        # Only the end of the last `fit` sets the mean.
        used = callbacks if epoch == EPOCHS - 1 else [WithoutTrainEnd([average]), *callbacks[1:]]
        model.fit(
            Batches(epoch, batch),
            shuffle=False,
            verbose=0,
            initial_epoch=epoch,
            epochs=epoch + 1,
            callbacks=used,
        )
        epoch, batch = epoch + 1, 0
    weights = [whole_value(v) for v in [*model.weights, *model.optimizer.variables]]
    if jax.process_index() == 0:
        np.savez(os.path.join(directory, "end.npz"), *weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
