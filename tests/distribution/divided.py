"""Trains a model whose weights are divided among two processes, one device each, and saves it; run
by test_divided.py on JAX. Arguments: the directory, and "alone" for one process without the other.

Prints what the test compares.
"""

import json
import sys

import jax
import keras
import numpy as np

from keras_attn.backend.replicas import held_parts
from keras_attn.callbacks import AverageCheckpoints, Resume
from keras_attn.callbacks.training_state import training_variables
from keras_attn.distribution import strategy
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.models import gpt
from keras_attn.text.batches.datasets import Rows

V, T = 12, 5


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        ids = np.random.default_rng(index).integers(1, V, (4, T + 1))
        batch = {"token_ids": ids[:, :-1]}, ids[:, 1:]
        return Rows.here(keras.distribution.distribution()).cut(batch)


def held(model):
    """Return the parts of the state that this process holds, those of its weights first."""
    return [part for v in training_variables(model) for part in held_parts(v).values()]


def main(directory, *alone):
    if not alone:
        strategy("multi_worker")
        mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"))
        layouts = keras.distribution.LayoutMap(mesh)
        layouts[".*token_embedding.*/table"] = ("model", None)
        layouts[".*intermediate/kernel"] = (None, "model")
        place = keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
        )
        keras.distribution.set_distribution(place)
    process = 0 if alone else jax.process_index()
    keras.utils.set_random_seed(3)
    model = gpt(V, 1, 2, 6, 8, dropout=0.0, max_length=T)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), LabelSmoothedCrossentropy(0.0))
    resume = Resume(f"{directory}/checkpoint")
    resume.restore(model)
    average = AverageCheckpoints(f"{directory}/average", last=1)
    model.fit(Batches(), epochs=2, shuffle=False, verbose=0, callbacks=[average, resume])
    state = held(model)
    path = f"{directory}/model-{process}.keras"
    model.save(path)
    for variable in model.trainable_variables:
        variable.assign(keras.ops.zeros(variable.shape))
    position = Resume(f"{directory}/checkpoint").restore(model)
    same = all(map(np.array_equal, held(model), state))
    keras.distribution.set_distribution(None)
    saved = [np.asarray(w) for w in keras.saving.load_model(path).get_weights()]
    np.savez(f"{directory}/saved-{process}.npz", *saved)
    cut = sum(np.size(a) for a in state[: len(saved)]) / sum(np.size(a) for a in saved)
    print(json.dumps([list(position), same, cut]))


if __name__ == "__main__":
    main(*sys.argv[1:])
