"""Quality by the length of the memory in the test, beside that of training."""

import sys

import keras
import numpy as np

from keras_attn import losses, memory, models, text

from ..language_model.architectures import with_memory
from .characters import bits_of_logits, characters, windows
from .experiment import Experiment

SEGMENT, BATCH = 64, 32
TESTED = (0, 64, 128, 256, 512)
STEPS, ROWS = 1400, 256


def run(memory_length):
    """Return the bits per character of the last segment of texts, for each memory of the test."""
    data = characters()
    sizes = {"num_layers": 3, "num_heads": 4, "hidden_dim": 64, "intermediate_dim": 256}
    model = models.transformer_xl(data.vocabulary_size, memory_length=memory_length, **sizes)
    _train(model, data.train)
    rows = windows(data.valid, TESTED[-1] + SEGMENT + 1, ROWS)
    return {f"{length} in the test": _bits(model, length, rows) for length in TESTED}


def _train(model, ids):
    trained = memory.StatefulSegments(model, BATCH)
    trained.compile(keras.optimizers.Adam(1e-3), losses.LabelSmoothedCrossentropy(0.0))
    segments = text.SegmentStreams(ids, batch_size=BATCH, segment_length=SEGMENT).as_dataset()
    trained.fit(segments.repeat().take(STEPS), steps_per_epoch=STEPS, verbose=0)


def _bits(model, memory_length, rows):
    """Return the bits of the last segment, after all earlier ones have gone through the memory."""
    reader = memory.StatefulSegments(with_memory(model, memory_length), len(rows))
    for start in range(0, rows.shape[1] - 1, SEGMENT):
        logits = reader.predict_on_batch(rows[:, start : start + SEGMENT])
    return float(np.mean(bits_of_logits(logits, rows[:, -SEGMENT:])))


EXPERIMENT = Experiment(
    "memory_lengths",
    "Does a model use a longer memory than that of its training?",
    "Bits per character of the last 64 of 576 characters of the source of Python's library, by a "
    "`transformer_xl` of 3 layers of width 64, which reads segments of 64 characters "
    f"and trained {STEPS:,} steps on {BATCH} of them, each after the one before. A row is a memory "
    "of the training, in tokens; a column is one of the test. All score the same characters.",
    {"64": 64, "128": 128, "256": 256},
    run,
    digits=3,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
