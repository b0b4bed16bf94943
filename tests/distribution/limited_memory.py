"""Trains a `gpt` of 51 million weights under a limit of this process's memory; run by
test_limited_memory.py on JAX. Arguments: the MB that it may take beside those of a process without
a model, and the number of processes that divide it.
"""

import re
import resource
import sys
from pathlib import Path

import jax
import keras
import numpy as np

from keras_attn.distribution import strategy
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.models import gpt
from keras_attn.text.batches.datasets import Rows

V, T = 512, 8


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        ids = np.random.default_rng(index).integers(1, V, (2, T + 1))
        batch = {"token_ids": ids[:, :-1]}, ids[:, 1:]
        return Rows.here(keras.distribution.distribution()).cut(batch)


def memory():
    """Return the bytes that the limit counts."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmData:\s*(\d+) kB", status)[1])


def main(limit, processes):
    if int(processes) > 1:
        strategy("model_parallel", data=1, model=int(processes))
    jax.config.update("jax_disable_most_optimizations", True)
    jax.devices()
    resource.setrlimit(resource.RLIMIT_DATA, (memory() + int(limit) * 10**6,) * 2)
    model = gpt(V, 4, 16, 1024, 4096, dropout=0.0, max_length=T)
    model.compile("adam", LabelSmoothedCrossentropy())
    history = model.fit(Batches(), shuffle=False, verbose=0).history
    print(model.count_params() > 5e7 and np.isfinite(history["loss"][-1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
