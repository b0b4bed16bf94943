"""Trains a model with a memory on two devices, killed within an epoch and not; run by
test_resumed_memory.py in a process of its own, since the number of logical devices is fixed when
TensorFlow starts. Prints one JSON object."""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_attn.backend.replicas import replicas_of
from keras_attn.callbacks import Resume
from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.memory import SegmentMemory, StatefulSegments
from keras_attn.metrics import Perplexity
from keras_attn.models import CausalLanguageModel
from keras_attn.text import SegmentStreams

V, M, ROWS = 13, 5, 4
EPOCHS, KILLED_AT = 2, (1, 2)  # the epoch, and how many of its batches are done


class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == KILLED_AT:
            raise KeyboardInterrupt


def batches():
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, V, length) for length in (8, 13, 14, 17, 6, 12)]
    return SegmentStreams(texts, ROWS, 3).as_dataset()


def made(strategy, seed):
    def block(index):
        attention = MultiHeadAttention(2, 3, score="relative", pattern="causal", use_bias=False)
        return TransformerBlock(attention, FeedForward(7), dropout=0.2)

    with strategy.scope():
        keras.utils.set_random_seed(seed)
        model = CausalLanguageModel(TokenEmbedding(V, 6), Stack(block, 1), memory=SegmentMemory(M))
        model = StatefulSegments(model, batch_size=ROWS)
        loss = LabelSmoothedCrossentropy()
        model.compile(keras.optimizers.Adam(0.03), loss, metrics=["accuracy", Perplexity()])
    return model


def parts(model):
    """Return the values of every variable on every replica."""
    variables = [*model.variables, *model.optimizer.variables]
    return [part for variable in variables for part in replicas_of(variable)]


def state(model):
    return [part.numpy() for part in parts(model)]


def apart(ours, theirs):
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def run(strategy, directory):
    """Compare the weights and last logs of a resumed run with those of an undisturbed one."""
    model = made(strategy, 3)
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
    beginning = state(model)
    arguments = {"verbose": 0, "epochs": EPOCHS}
    expected = model.fit(batches(), **arguments).history
    straight = state(model)
    for part, value in zip(parts(model), beginning, strict=True):
        part.assign(value)
    try:
        model.fit(batches(), callbacks=[Resume(directory, every_steps=1), Kill()], **arguments)
    except KeyboardInterrupt:
        pass
    resumed, resume = made(strategy, 4), Resume(directory, every_steps=1)
    epoch, batch = resume.restore(resumed)
    memories = [part.numpy() for part in replicas_of(resumed.state["memory"])]
    rest = batches().skip(batch)
    logged = resumed.fit(rest, initial_epoch=epoch, callbacks=[resume], **arguments).history
    return {
        "position": [epoch, batch],
        "memories": apart(memories[:1], memories[1:]),
        "moved": apart(state(model), straight),
        "difference": apart(state(resumed), straight),
        "expected": {name: values[-1] for name, values in expected.items()},
        "logged": {name: values[-1] for name, values in logged.items()},
    }


def plain(strategy):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
        )
        model.compile("adam", "mse")
    return model


def on_another_number_of_replicas(directory, one, two):
    """Shared variables are restored on any number of replicas; memories are not."""
    model, x = plain(two), np.ones((4, 3), "float32")
    model.fit(x, x[:, :2], verbose=0, callbacks=[Resume(os.path.join(directory, "plain"))])
    restored = plain(one)
    epoch = Resume(os.path.join(directory, "plain")).initial_epoch(restored)
    try:
        Resume(os.path.join(directory, "two")).restore(made(one, 3))
    except ValueError as error:
        return epoch, apart(model.get_weights(), restored.get_weights()), str(error)


def main(directory):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one = tf.distribute.get_strategy()
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    result = run(two, os.path.join(directory, "two"))
    result["others"] = on_another_number_of_replicas(directory, one, two)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
