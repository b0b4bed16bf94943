"""
Title: A memory across calls
Author: keras_attn developers
Date created: 2026/11/23
Last modified: 2026/11/23
Description: Serve a Transformer-XL without state: the memory goes in and out of each call.
"""

import argparse
import pathlib
from pydoc_data.topics import topics

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from keras_attn import export, losses, memory, models, text

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".", type=pathlib.Path, help="folder for export and picture")
out = parser.parse_known_args()[0].out
out.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)

"""
## A text in segments

A text that arrives in pieces, such as a conversation, is read piece by piece. A plain Transformer
forgets a piece when its call ends. Transformer-XL keeps the last inputs of each layer, 64 here, and
attends to them in the next call. The text is Python's own manual as bytes, in segments of 32.
"""

SEGMENT, MEMORY = 32, 64
manual = np.frombuffer("\n".join(topics.values()).encode(), "uint8").astype("int32")
train, test = manual[:-20_000], manual[-20_000:]

"""
## Training

`StatefulSegments` holds the memory between the batches of `fit`, and row b of a batch continues row
b of the batch before, as `SegmentStreams` arranges.
"""

model = models.transformer_xl(
    vocabulary_size=256,
    num_layers=2,
    num_heads=4,
    hidden_dim=128,
    intermediate_dim=512,
    memory_length=MEMORY,
)
streams = text.SegmentStreams(train, batch_size=32, segment_length=SEGMENT)
trained = memory.StatefulSegments(model, batch_size=32)
trained.compile(keras.optimizers.Adam(2e-3), losses.LabelSmoothedCrossentropy(0.0))
trained.fit(streams, epochs=2, verbose=2)

"""
## An export without state

Two functions of the export are enough: `initial_memory` gives the memory before the first segment,
and `step` reads a segment and returns logits and the next memory. The caller holds the memory, so
one copy of the model reads any number of texts at once, and any server can answer the next call.
"""

version = export.saved_model(model, out / "reader")
reader = tf.saved_model.load(version)
initial_memory, step = reader.signatures["initial_memory"], reader.signatures["step"]


def bits_of_each_byte(rows, remember):
    """Return the bits (B, T) that the model needs for the bytes after the first of each row."""
    empty = state = initial_memory(batch_size=tf.constant(len(rows)))
    bits = []
    for start in range(0, rows.shape[1] - 1, SEGMENT):
        token_ids, following = rows[:, start:][:, :SEGMENT], rows[:, start + 1 :][:, :SEGMENT]
        lengths = tf.fill([len(rows)], SEGMENT)
        outputs = step(token_ids=tf.constant(token_ids), lengths=lengths, **state)
        if remember:
            state = {name: outputs[name] for name in empty}
        loss = keras.losses.sparse_categorical_crossentropy(following, outputs["logits"], True)
        bits.append(loss / np.log(2))
    return np.concatenate(bits, axis=1)


"""
## The worth of the memory

The same model reads 16 pieces of unseen text, once with its memory and once with an empty one in
each call. Without a memory it must guess the first bytes of each segment.
"""

rows = np.stack([test[start : start + 1025] for start in range(0, 16 * 1024, 1024)])
with_memory, without = (bits_of_each_byte(rows, remember) for remember in (True, False))
print(f"Bits per byte with memory {with_memory.mean():.2f}, without {without.mean():.2f}")

"""
## Readers share nothing

Two of the pieces, each read alone, get the numbers that they got among 16 in a batch: the answer to
a call depends on its arguments only.
"""

first, second = (bits_of_each_byte(rows[n : n + 1], remember=True) for n in (0, 1))
apart = np.abs(np.concatenate([first, second]) - with_memory[:2]).max()
print(f"Read alone or among 16, a byte's bits differ by at most {apart:.0e}")

plt.figure(figsize=(7, 3.2), layout="constrained")
for name, bits in [("memory empty in each call", without), ("memory handed on", with_memory)]:
    plt.plot(np.arange(1, SEGMENT + 1), bits.reshape(-1, SEGMENT).mean(axis=0), "o-", label=name)
plt.xlabel("byte of the segment")
plt.ylabel("bits to predict it")
plt.legend()
plt.savefig(out / "memory_across_calls.png", dpi=80)
