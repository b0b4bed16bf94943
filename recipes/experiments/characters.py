"""Small causal character models of the experiments, and the text that they read."""

import dataclasses

import keras
import numpy as np

from keras_attn import depth, layers, losses, models, text

from ..text.data import read_text


@dataclasses.dataclass(frozen=True)
class Characters:
    """Ids of the source of Python's library, of which `valid` are later characters than `train`.

    Args:
        train: array of shape (2,000,000,).
        valid: array of shape (n,).
        vocabulary_size: int.
    """

    train: np.ndarray
    valid: np.ndarray
    vocabulary_size: int


def characters():
    """Return the `Characters` of the text that the recipes read by default."""
    splits = read_text().splits()
    train, valid = ("".join(splits[split].blocks()) for split in ("train", "valid"))
    tokenizer = text.Characters.train([train[:200_000]])
    train, valid = tokenizer.encode_as_lists([train[:2_000_000], valid])
    return Characters(np.array(train), np.array(valid), tokenizer.vocabulary_size)


def windows(ids, length, count):
    """Return `count` random windows of `length` ids, the same in each run."""
    starts = np.random.default_rng(0).integers(0, len(ids) - length, count)
    return ids[starts[:, None] + np.arange(length)]


def language_model(
    vocabulary_size, make_block, num_layers, width, position=None, learning_rate=1e-3
):
    """Return a compiled model of the blocks that `make_block(index)` returns."""
    model = models.CausalLanguageModel(
        layers.TokenEmbedding(vocabulary_size, width),
        depth.Stack(make_block, num_layers),
        position=position,
    )
    model.compile(keras.optimizers.Adam(learning_rate), losses.LabelSmoothedCrossentropy(0.0))
    return model


def attention(**arguments):
    """Return a causal layer of 4 heads of size 16."""
    return layers.MultiHeadAttention(4, 16, **{"pattern": "causal", **arguments})


def narrow_model(vocabulary_size, num_layers=3, model_position=None, **arguments):
    """Return a model of layers of width 64, with `arguments` for each `attention`."""

    def block(index):
        feed_forward = layers.FeedForward(256)
        return layers.TransformerBlock(attention(**arguments), feed_forward, residual="pre_norm")

    return language_model(vocabulary_size, block, num_layers, 64, model_position)


def train(model, ids, length, steps, batch_size=32):
    """Train the model for `steps` on random windows of `length` characters."""
    rows = windows(ids, length + 1, steps * batch_size)
    model.fit(rows[:, :-1], rows[:, 1:], batch_size=batch_size, epochs=1, verbose=0)


def bits(model, rows, count):
    """Return the bits per character of the last `count` characters of rows of ids."""
    return float(bits_by_position(model, rows, count).mean())


def bits_by_position(model, rows, count):
    """Return the mean bits of each of the last `count` characters of rows of ids: (count,)."""
    logits = model.predict(rows[:, :-1], batch_size=16, verbose=0)[:, -count:]
    return bits_of_logits(logits, rows[:, -count:]).mean(axis=0)


def bits_of_logits(logits, ids):
    """Return the bits of each id (B, T) by the logits (B, T, V) of its place."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, ids[..., None], axis=-1)[..., 0]
    return (log_sum - chosen) / np.log(2)
