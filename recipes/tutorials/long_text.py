"""
Title: Long text in little memory
Author: keras_attn developers
Date created: 2026/11/23
Last modified: 2026/11/23
Description: Measure where the memory of training goes, then train on 16,384 bytes at once.
"""

import argparse
import pathlib
from pydoc_data.topics import topics

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from keras_attn import depth, layers, patterns, positions

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".", type=pathlib.Path, help="folder for the picture")
out = parser.parse_known_args()[0].out
out.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)

"""
## A language model of any depth

Python's own manual is the text, read as bytes. The model predicts each byte from those before it.
The class that stacks the blocks and the arguments of their attention are arguments here, since they
decide the memory. Steps run eagerly: the measurements are short, and tracing would take longer.
"""

manual = np.frombuffer("\n".join(topics.values()).encode(), "uint8").astype("int32")


def language_model(stack, **attention):
    def block(index):
        attend = layers.MultiHeadAttention(num_heads=2, key_dim=64, **attention)
        return layers.TransformerBlock(attend, layers.FeedForward(512), residual="pre_norm")

    token_ids = keras.Input((None,), dtype="int32")
    embedding = layers.TokenEmbedding(vocabulary_size=256, hidden_dim=128)
    x = positions.Sinusoidal()(embedding(token_ids))
    model = keras.Model(token_ids, embedding.logits(stack(block, num_layers=8)(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, run_eagerly=True)
    return model


"""
## One step, measured

TensorFlow counts the bytes of its tensors, on a GPU and on x86 processors. The peak of a step, less
the weights and the optimizer that exist before it, is what training keeps to compute gradients.
"""

device = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"


def step(model, length):
    """Train on the first bytes of the text; return the loss and the megabytes of the step."""
    before = tf.config.experimental.get_memory_info(device)["current"]
    tf.config.experimental.reset_memory_stats(device)
    loss = model.train_on_batch(manual[None, :length], manual[None, 1 : length + 1])
    return float(loss), (tf.config.experimental.get_memory_info(device)["peak"] - before) / 2**20


"""
## Four ideas

The matrix of scores has the length squared, in each head of each layer. `Local` computes a window
of it. What remains is each layer's activations: `remat` keeps the input of some blocks and computes
the rest again, `Reversible` keeps no input and recovers it from the output. `LSH` replaces the
window by the keys that hash as the query does, which may be anywhere before it.
"""


def remat(block, num_layers):
    return depth.Stack(block, num_layers, remat=True)


local = {"pattern": patterns.Local(128)}
lsh = {"pattern": patterns.LSH(64), "score": "shared_qk"}
ideas = {
    "all scores": (depth.Stack, {"pattern": "causal", "implementation": "dense"}),
    "Local": (depth.Stack, local),
    "Local, remat": (remat, local),
    "Local, Reversible": (depth.Reversible, local),
    "LSH, Reversible": (depth.Reversible, lsh),
}
measured = {}
for name, (stack, attention) in ideas.items():
    model = language_model(stack, **attention)
    step(model, 64)  # creates the optimizer's variables
    measured[name] = step(model, 2048)[1]
    print(f"2048 bytes, {name}: {measured[name]:.0f} MB")

"""
## The memory, spent on text

The last model reads eight times as many bytes at once, in less memory than the first one took.
"""

for number in range(1, 5):
    loss, megabytes = step(model, 16_384)
    print(f"Step {number}, 16384 bytes, LSH, Reversible: loss {loss:.2f}, {megabytes:.0f} MB")

plt.figure(figsize=(7, 2.6), layout="constrained")
bars = plt.barh(list(measured), list(measured.values()))
plt.bar_label(bars, fmt="%.0f", padding=3)
plt.gca().invert_yaxis()
plt.margins(x=0.1)
plt.xlabel("megabytes of a training step on 2,048 bytes, 8 layers")
plt.savefig(out / "long_text.png", dpi=80)
