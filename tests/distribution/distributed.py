"""Trains the same model on one device and on two; run by test_distributed.py in a process of its
own, since the number of logical devices is fixed when TensorFlow starts.

Prints one JSON object: for every loss the greatest difference between the weights of one device
and of two, how far training moved them, and the numbers that `fit` reported.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_attn.callbacks import Resume
from keras_attn.losses import AuxiliaryLosses, LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.models import gpt

V, T = 13, 8


def data():
    """Batches of four rows: the first two, which go to the first replica, are full and the last
    two hold one real token between them; in the last batch the second replica has none."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, V, (12, T))
    labels = rng.integers(1, V, (12, T))
    for batch in range(3):
        labels[4 * batch + 2 : 4 * batch + 4] = 0
    labels[2, 0], labels[7, 3] = 5, 9
    return tokens, labels


def plain_model():
    return keras.Sequential(
        [keras.Input((T,)), keras.layers.Embedding(V, 6), keras.layers.Dense(V)]
    )


def model_with_auxiliary_losses():
    """In six steps, the intermediate losses of the first two layers end at 1 and 2."""
    return AuxiliaryLosses(gpt(V, 3, 1, 4, 4, 0.0, max_length=T), total_steps=6)


def train(strategy, loss, resume_directory=None, make=plain_model):
    tokens, labels = data()
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = make()
        optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
        model.compile(optimizer, loss, metrics=[Perplexity(), TokenAccuracy()])
    before = model.get_weights()
    dataset = tf.data.Dataset.from_tensor_slices((tokens, labels)).batch(4, drop_remainder=True)
    callbacks = [Resume(resume_directory)] if resume_directory else []
    history = model.fit(dataset, epochs=2, verbose=0, callbacks=callbacks).history
    return before, model, {name: values[-1] for name, values in history.items()}


def furthest(ours, theirs):
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs))


def main(directory):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    result = {"replicas": two.num_replicas_in_sync}
    for name, loss in {
        "ours": LabelSmoothedCrossentropy(0.1),
        "keras": keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
    }.items():
        start, alone, logs_alone = train(one, loss)
        _, together, logs_together = train(two, loss, directory if name == "ours" else None)
        result[name] = {
            "moved": furthest(start, alone.get_weights()),
            "difference": furthest(alone.get_weights(), together.get_weights()),
            "one": logs_alone,
            "two": logs_together,
        }
        if name == "ours":
            trained = together.get_weights()
            together.set_weights(start)
            result["epoch"] = Resume(directory).initial_epoch(together)
            result["restored"] = furthest(trained, together.get_weights())
    runs = [
        train(strategy, LabelSmoothedCrossentropy(0.0), make=model_with_auxiliary_losses)
        for strategy in (one, two)
    ]
    (start, alone, logs_alone), (_, together, logs_together) = runs
    result["auxiliary"] = {
        "moved": furthest(start, alone.get_weights()),
        "difference": furthest(alone.get_weights(), together.get_weights()),
        "progress": [model.progress for model in (alone, together)],
        "one": logs_alone,
        "two": logs_together,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
