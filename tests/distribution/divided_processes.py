"""Trains a model that several processes hold together; run by test_divided_processes.py on JAX.

Arguments: data and model, the sizes of the mesh, a directory, and "alone" for one process with one
device. Each model ends in a file of weights, which all processes gather and each writes.
"""

import sys

import jax
import keras
import numpy as np

from keras_attn.backend.replicas import whole_model
from keras_attn.distribution import model_parallel as layout
from keras_attn.distribution import strategy
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.memory import StatefulSegments
from keras_attn.models import gpt, transformer, transformer_xl
from keras_attn.text.batches.datasets import Rows

V, T, ROWS, STEPS = 16, 6, 8, 6
SIZES = {"num_layers": 1, "num_heads": 8, "hidden_dim": 16, "intermediate_dim": 16, "dropout": 0.1}


class Batches(keras.utils.PyDataset):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        ids = np.random.default_rng(index).integers(1, V, (ROWS, T + 1))
        batch = {name: ids[:, :-1] for name in self.names}, ids[:, 1:]
        return Rows.here(keras.distribution.distribution()).cut(batch)


def models():
    yield "gpt", gpt(V, **SIZES, max_length=T)
    yield "transformer", transformer(V, **SIZES)
    xl = transformer_xl(V, **SIZES, memory_length=9)
    yield "transformer_xl", StatefulSegments(xl, batch_size=ROWS)


def main(data, model, shards, directory, *alone):
    if not alone:
        sizes = {"data": int(data), "model": int(model), "shards_parameters": shards == "True"}
        place = strategy("model_parallel", **sizes)
    keras.utils.set_random_seed(3)
    for name, model in models():
        model.compile(keras.optimizers.SGD(0.1, momentum=0.5), LabelSmoothedCrossentropy(0.1))
        names = ("source_ids", "target_ids") if name == "transformer" else ("token_ids",)
        model.fit(Batches(names), shuffle=False, verbose=0)
        with whole_model(model):
            weights = [np.asarray(v.numpy()) for v in model.trainable_variables]
        if jax.process_index() == 0:
            np.savez(f"{directory}/{name}.npz", *weights)
    if not alone:
        print(len(place.undivided))


if __name__ == "__main__":  # pytest imports each module
    layout.LEAST_SHARDED_SIZE = 1
    jax.config.update("jax_disable_most_optimizations", True)
    main(*sys.argv[1:])
