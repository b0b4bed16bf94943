"""Trains small models for twenty steps under a strategy and writes their weights and numbers to a
file; run by test_replicas.py in processes of their own.

Arguments: the directory of the files, the cases with commas between them, and the strategies'
names. Other processes are found in the environment, and on TensorFlow there are two logical devices
unless there are other processes.
"""

import os
import sys

import keras
import numpy as np

from keras_attn import depth, layers, models
from keras_attn.distribution import strategy
from keras_attn.losses import AuxiliaryLosses, LabelSmoothedCrossentropy
from keras_attn.memory import StatefulSegments
from keras_attn.metrics import Perplexity
from keras_attn.optimizers import Adam
from keras_attn.text import SegmentStreams, TokenBatches
from keras_attn.text.batches.datasets import Rows, dataset_of

V, T, ROWS, STEPS = 13, 5, 4, 5
EPOCHS = 4
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
if IS_TENSORFLOW:
    import tensorflow as tf


class Batches(keras.utils.PyDataset):
    """Five batches: the first replica's rows are full and the second's hold two real tokens between
    them, in the third batch none; the last batches have three rows and one, so the second replica
    has none."""

    def __init__(self, make_inputs):
        super().__init__()
        random = np.random.default_rng(1)
        self.batches = []
        for step in range(STEPS):
            targets = random.integers(3, V, (ROWS, T), dtype="int32")
            targets[2:] = 0
            if step != 2:
                targets[2, 0], targets[3, 0] = 5, 7
            rows = {STEPS - 2: 3, STEPS - 1: 1}.get(step, ROWS)
            self.batches.append((make_inputs(random, targets[:rows]), targets[:rows]))
        self.distribution = keras.distribution.distribution()

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return Rows.here(self.distribution).cut(self.batches[index])

    def as_dataset(self):
        import tensorflow as tf

        signature = keras.tree.map_structure(
            lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), self.batches[0]
        )
        return dataset_of(lambda rows: map(rows.cut, self.batches), signature, STEPS)


def shifted(random, targets):
    """The targets shifted by one, padding where they are."""
    tokens = np.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=2)
    return np.where(targets > 0, tokens, 0)


def streams(seed=0):
    """Twenty segments: texts of very different length, and rows that run dry."""
    random = np.random.default_rng(seed)
    texts = [random.integers(1, V, length) for length in (8, 3, 40, 98, 6, 2, 30, 11)]
    return SegmentStreams(texts, ROWS, T)


def tokens(random, targets):
    return random.integers(1, V, targets.shape, dtype="int32")


def sizes(**others):
    return {
        "vocabulary_size": V,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 6,
        "intermediate_dim": 7,
        "dropout": 0.0,
        **others,
    }


def halting_model():
    attention = layers.MultiHeadAttention(2, 3, pattern="causal")
    block = layers.TransformerBlock(attention, layers.FeedForward(7))
    halting = depth.ACT(block, max_steps=3, ponder_loss=0.1, name="depth")
    return models.CausalLanguageModel(layers.TokenEmbedding(V, 6), halting, position=None)


# Of each model: how it is made, its data, its optimizer and the epochs that make twenty steps.
CASES = {
    "act": (
        halting_model,
        lambda: Batches(shifted),
        lambda: Adam(0.01, epsilon=1e-3, global_clipnorm=0.3),
        EPOCHS,
    ),
    "adaptive_span_transformer": (
        lambda: StatefulSegments(
            models.adaptive_span_transformer(**sizes(max_span=9, ramp=2, span_loss=0.05)), ROWS
        ),
        streams,
        lambda: keras.optimizers.SGD(0.1),
        1,
    ),
    # In twenty steps, the intermediate loss of the first layer ends.
    "auxiliary": (
        lambda: AuxiliaryLosses(models.gpt(**sizes(num_layers=2, max_length=T)), total_steps=20),
        lambda: Batches(tokens),
        lambda: keras.optimizers.SGD(0.5, momentum=0.5),
        EPOCHS,
    ),
}


def numbers(place, name):
    """Train the case `name` and return its weights before and after, losses and metrics."""
    make, data, optimizer, epochs = CASES[name]
    keras.utils.set_random_seed(3)
    with place.scope():
        model = make()
        model.compile(
            optimizer(),
            LabelSmoothedCrossentropy(0.0),
            metrics=[Perplexity()],
            jit_compile=False if IS_TENSORFLOW else "auto",
        )
        before = model.get_weights()
        fed, held_out = data(), data() if name == "adaptive_span_transformer" else None
        if IS_TENSORFLOW:
            fed, held_out = [x and x.as_dataset() for x in (fed, held_out)]
    arguments = {"epochs": epochs, "validation_data": held_out, "shuffle": False, "verbose": 0}
    history = model.fit(fed, **arguments).history
    steps = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    assert steps == STEPS * EPOCHS, steps
    weights = [np.array(w) for w in model.get_weights()]
    trained = [w for w, v in zip(weights, model.weights, strict=True) if v.trainable]
    begun = [w for w, v in zip(before, model.weights, strict=True) if v.trainable]
    return {
        f"{name}/before": np.concatenate([w.ravel() for w in begun]),
        f"{name}/after": np.concatenate([w.ravel() for w in trained]),
        **{f"{name}/{key}": np.array(values) for key, values in history.items()},
        **({f"{name}/progress": model.progress} if name == "auxiliary" else {}),
    }


def odd_loss(place):
    """Return the loss that `evaluate` shows of rows of two lengths, of which one is the last batch.

    Experts add losses to it.
    """
    ids = np.random.default_rng(2).integers(1, V, (9, T), dtype="int32")
    ids[4:, 2:] = 0
    with place.scope():
        keras.utils.set_random_seed(1)
        experts = layers.MixtureOfExperts(layers.FeedForward(5), 3, balance_loss=0.5, z_loss=0.5)
        block = layers.TransformerBlock(layers.MultiHeadAttention(2, 3, pattern="causal"), experts)
        stack = depth.Stack([block], name="depth")
        model = models.CausalLanguageModel(layers.TokenEmbedding(V, 6), stack)
        model.compile("sgd", LabelSmoothedCrossentropy(0.0), jit_compile=False)
    return model.evaluate(tf.data.Dataset.from_tensor_slices((ids, ids)).batch(8), verbose=0)


def distances(place):
    """Return how far two replicas are apart in two steps, for each part that drops."""

    def block(dropout=0.0):
        attention, feed_forward = layers.MultiHeadAttention(2, 3), layers.FeedForward(7)
        return layers.TransformerBlock(attention, feed_forward, dropout=dropout)

    parts = [
        lambda: attending(layers.MultiHeadAttention(2, 3, dropout=0.5)),
        lambda: layers.FeedForward(64, dropout=0.5, chunks=3),
        lambda: depth.Stack([block(dropout=0.5)], remat=True),
        lambda: depth.Stack([block()], drop=0.5),
    ]
    x, seen = tf.random.stateless_normal((7, T, 6), [1, 2]), []
    for make in parts:
        with place.scope():
            keras.utils.set_random_seed(5)
            part = make()
            part(x)
        step = tf.function(lambda part=part: place.run(lambda: part(x, training=True)))
        for _ in range(2):
            first, second = place.experimental_local_results(step())
            seen.append(np.abs(first - second).max())
    return np.array(seen)


def attending(layer):
    x = keras.Input((T, 6))
    return keras.Model(x, layer(x, x))


def rows_seen(place):
    """Return (batch, token, token ...) of each row of two epochs, replica by replica."""
    random = np.random.default_rng(5)
    sentences = [[random.integers(4, 99, n) for n in random.integers(1, 9, 23)] for _ in range(2)]
    with place.scope():
        data = TokenBatches(*sentences, tokens_per_batch=30, multiple=3).as_dataset()
    seen, batch = [], 0
    for inputs, _ in [*data, *data]:
        for ids in place.experimental_local_results(inputs["source_ids"]):
            for row in np.asarray(ids):
                seen.append([batch, *row, *[0] * (9 - len(row))])
        batch += 1
    return np.array([row for row in seen if any(row[1:])])


def main(directory, cases, *kinds):
    if IS_TENSORFLOW and "TF_CONFIG" not in os.environ:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    for kind in kinds:
        place = strategy(kind)
        arrays = {"replicas": place.num_replicas_in_sync}
        if IS_TENSORFLOW:
            arrays["rows"] = rows_seen(place)
        if IS_TENSORFLOW and "TF_CONFIG" not in os.environ:
            arrays["odd"] = odd_loss(place)
            if arrays["replicas"] == 2:
                arrays["distances"] = distances(place)
        for name in cases.split(","):
            arrays |= numbers(place, name)
        np.savez(os.path.join(directory, kind), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
