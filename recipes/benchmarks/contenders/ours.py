"""keras_attn, through its public API."""

import functools
import tempfile

from ...common.machine import cores
from ..workload import SHAPES, Task, sentences
from .fit import LEARNING_RATE, fit_task

EOS = 3


def training(size, batch, length, steps, policy, smoothing, dropout):
    """Optimizer steps under `model.fit`."""
    import keras

    import keras_attn

    keras.config.set_dtype_policy(policy)
    shape = SHAPES[size]
    # The peers' layers drop attention weights too, so ours do here; our default does not.
    rates = {"dropout": dropout, "attention_dropout": dropout}
    model = keras_attn.models.create(shape.preset, vocabulary_size=shape.vocabulary_size, **rates)
    loss = keras_attn.losses.LabelSmoothedCrossentropy(smoothing)
    optimizer = keras_attn.optimizers.Adam(LEARNING_RATE)
    return fit_task(model, optimizer, loss, batch, length, steps, shape.vocabulary_size, policy)


def decoding(size, batch, source_length, new_tokens, beams, mode, threads=None):
    """Cached decoding: XLA in process, the plain graph in process, or an exported SavedModel.

    Args:
        mode: `"xla"`, `"graph"`, `"saved_model"`, `"compiled"` for one that XLA compiles, or
            `"compiled_in_parts"` for one that divides a batch, a part for each core.
        threads: of one operation; None for one a core.
    """
    import numpy as np
    import tensorflow as tf

    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    import keras_attn

    shape = SHAPES[size]
    model = keras_attn.models.create(shape.preset, vocabulary_size=shape.vocabulary_size)
    forbid_end(model)
    ids = sentences(batch, source_length, shape.vocabulary_size)
    generation = keras_attn.generation
    strategy = generation.Greedy() if beams == 1 else generation.Beam(beams)
    decode = MODES[mode](model, ids, strategy, new_tokens)
    tokens = np.asarray(decode())
    if tokens.shape != (batch, new_tokens) or (tokens <= EOS).any():
        raise RuntimeError(f"it did not decode {new_tokens} ordinary tokens a sentence")
    return Task(call=decode, units=batch * new_tokens)


def forbid_end(model):
    """Zero the rows of pad, unk, bos and eos, whose logit 0 never is among the best of 8,000."""
    table = model.embedding.table.numpy()
    table[: EOS + 1] = 0
    model.embedding.table.assign(table)


def in_process(model, ids, strategy, new_tokens, jit_compile):
    """The public entry, which traces at its first call."""
    import tensorflow as tf

    import keras_attn

    source_ids = tf.constant(ids)

    def decode():
        return keras_attn.generation.generate(
            model, source_ids, strategy, new_tokens, jit_compile=jit_compile
        )[0].numpy()

    return decode


def saved_model(model, ids, strategy, new_tokens, compile, parallel=1):
    """Time the reloaded export, by its signature on ids and lengths."""
    import tensorflow as tf

    import keras_attn

    how = {"max_length": new_tokens, "compile": compile}
    if compile is not None:
        rows, length = ids.shape
        how["buckets"] = keras_attn.export.Buckets(
            [-(-rows // parallel)], [length], parallel=parallel
        )
    with tempfile.TemporaryDirectory() as folder:
        loaded = tf.saved_model.load(
            keras_attn.export.saved_model(model, folder, strategy=strategy, **how)
        )
    signature = loaded.signatures["ids"]
    source_ids = tf.constant(ids)
    lengths = tf.fill([len(ids)], ids.shape[1])

    def decode(loaded=loaded):  # The signature does not keep the model that it belongs to alive.
        return signature(source_ids=source_ids, source_lengths=lengths)["ids"].numpy()

    return decode


MODES = {
    "xla": functools.partial(in_process, jit_compile=True),
    "graph": functools.partial(in_process, jit_compile=False),
    "saved_model": functools.partial(saved_model, compile=None),
    "compiled": functools.partial(saved_model, compile="xla"),
    "compiled_in_parts": functools.partial(saved_model, compile="xla", parallel=cores()),
}
