"""Training of a folder's PatchTST by keras_attn, for `series_training`:

python -m recipes.benchmarks.contenders.series_training FOLDER
"""

import json
import pathlib
import statistics
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from keras_attn.convert import from_hugging_face


def main(folder):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model, _ = from_hugging_face(pathlib.Path(folder, "checkpoint"))
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "mse", jit_compile=False)
    losses, seconds = [], []
    with np.load(pathlib.Path(folder, "batches.npz")) as file:
        pairs = list(zip(file["past"], file["future"], strict=True))
    for past, future in pairs:
        start = time.process_time()
        loss = model.train_on_batch(past, future)
        seconds.append(time.process_time() - start)
        losses.append(float(loss))
        model.reset_metrics()
    return {"losses": losses, "seconds": statistics.median(seconds[len(seconds) // 2 :])}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
