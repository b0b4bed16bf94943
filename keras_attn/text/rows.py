"""Rows of ids of different lengths: ragged tensors on TensorFlow, lists of arrays elsewhere."""

import keras
import numpy as np

tf = None
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf


def row_lengths(rows):
    """Return the number of ids in each row."""
    if isinstance(rows, list):
        return np.array([len(row) for row in rows], "int64")
    return rows.row_lengths()


def shorten(rows, length):
    """Keep the first `length` ids of each row."""
    if isinstance(rows, list):
        return [row[:length] for row in rows]
    return rows[:, :length]


def shorten_each(rows, lengths):
    """Keep as many ids at the start of each row as `lengths` says."""
    if isinstance(rows, list):
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]
    return tf.RaggedTensor.from_tensor(rows.to_tensor(), lengths)


def repeat(ids, rows):
    """Return the same ids once for each of the `rows`."""
    if isinstance(rows, list):
        return [np.array(ids, "int32")] * len(rows)
    return tf.tile(tf.constant(ids, tf.int32, [1, len(ids)]), [rows.nrows(), 1])


def join(parts):
    """Concatenate several lists of rows row by row; some may be results of `repeat`."""
    if isinstance(parts[0], list):
        return [np.concatenate(row) for row in zip(*parts, strict=True)]
    return tf.concat(parts, axis=1)


def fill(rows, value):
    """Replace each id by `value`."""
    if isinstance(rows, list):
        return [np.full_like(row, value) for row in rows]
    return tf.ones_like(rows) * value


def pad(rows, value):
    """Return ids (B, T), int32, with `value` after each row's end, and the lengths (B,)."""
    lengths = row_lengths(rows)
    if not isinstance(rows, list):
        return rows.to_tensor(value), tf.cast(lengths, tf.int32)
    ids = np.full((len(rows), lengths.max(initial=0)), value, "int32")
    for padded, row in zip(ids, rows, strict=True):
        padded[: len(row)] = row
    return ids, lengths.astype("int32")
