"""Trains the same model with a memory on one device and on two; run by
test_distributed_segments.py in a process of its own, since the number of logical devices is fixed
when TensorFlow starts. Prints one JSON object."""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.memory import SegmentMemory, StatefulSegments
from keras_attn.models import CausalLanguageModel
from keras_attn.text import SegmentStreams

V, M, ROWS = 13, 5, 4


def streams(seed):
    """Texts of very different length: rows begin anew at different times, some run dry."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(1, V, length) for length in (8, 3, 14, 17, 6, 2)]
    return SegmentStreams(texts, ROWS, 3).as_dataset()


def made(strategy):
    def block(index):
        attention = MultiHeadAttention(2, 3, score="relative", pattern="causal", use_bias=False)
        return TransformerBlock(attention, FeedForward(7))

    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = CausalLanguageModel(TokenEmbedding(V, 6), Stack(block, 1), memory=SegmentMemory(M))
        model = StatefulSegments(model)
        model.compile(keras.optimizers.SGD(0.3), LabelSmoothedCrossentropy(), jit_compile=False)
    return model


def state(model):
    """Return the memories of all rows, replica after replica."""
    rows = {}
    for name, variable in model.state.items():
        parts = getattr(variable.value, "values", [variable])
        rows[name] = np.concatenate([np.asarray(part) for part in parts])
    filled = np.arange(M) >= M - rows["memory_length"][:, None]
    return np.where(filled[:, None, :, None], rows["memory"], 0), rows["memory_length"]


def apart(ours, theirs):
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def main(directory):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    models, losses = [], []
    for strategy in (one, two):
        model = made(strategy)
        arguments = {"epochs": 2, "verbose": 0, "validation_data": streams(1)}
        history = model.fit(streams(0), **arguments).history
        losses.append(history["loss"] + history["val_loss"])
        models.append(model)
    alone, together = models
    path = os.path.join(directory, "model.keras")
    together.save(path)
    loaded = keras.models.load_model(path, compile=False)
    with two.scope():
        loaded_together = keras.models.load_model(path, compile=False)
    loaded_together.reset()
    weights = os.path.join(directory, "model.weights.h5")
    alone.save_weights(weights)
    loaded_together.load_weights(weights)
    try:
        with two.scope():
            StatefulSegments(together.model, batch_size=3)
    except ValueError as error:
        refused = str(error)
    result = {
        "refused": refused,
        "replicas": two.num_replicas_in_sync,
        "rows": [list(m.state["memory"].shape)[0] for m in models],
        "lengths": state(alone)[1].tolist(),
        "weights": apart(alone.get_weights()[2:], together.get_weights()[2:]),
        "losses": apart(np.array(losses[:1]), np.array(losses[1:])),
        "state": apart(state(alone), state(together)),
        "loaded": apart(state(together), state(loaded)),
        "loaded together": apart(state(alone), state(loaded_together)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
