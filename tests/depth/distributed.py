"""Trains stacks that compute again what they need, on one device and on two; run by
test_reversible.py in a process of its own, since the number of logical devices is fixed when
TensorFlow starts.

Prints one JSON object: for each stack the greatest difference between the weights of one device and
of two, and how far training moved them.
"""

import json

import keras
import numpy as np
import tensorflow as tf

from keras_attn.depth import Reversible, Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

T, D = 5, 6


def block(index):
    return TransformerBlock(MultiHeadAttention(2, 3), FeedForward(7), residual="pre_norm")


def train(strategy, depth):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 4, T, D)).astype("float32")
    with strategy.scope():
        keras.utils.set_random_seed(3)
        inputs = keras.Input((T, D))
        model = keras.Model(inputs, depth()(inputs))
        model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=False)
    before = model.get_weights()
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return before, model.get_weights()


def furthest(ones, others):
    return max(float(np.abs(one - other).max()) for one, other in zip(ones, others, strict=True))


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one, two = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    stacks = {
        "reversible": lambda: Reversible(block, 1),
        "remat": lambda: Stack(block, 1, remat=True),
    }
    report = {}
    for name, depth in stacks.items():
        before, alone = train(one, depth)
        together = train(two, depth)[1]
        report[name] = furthest(alone, together), furthest(alone, before)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
