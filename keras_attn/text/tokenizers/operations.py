"""Operations of all tokenizers, alike in a TensorFlow graph and in Python.

Rows of ids of different lengths are ragged tensors on TensorFlow and lists of arrays elsewhere. A
regular expression is read alike by TensorFlow's operations and by Python's package `regex`.
"""

import importlib
import unicodedata

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


def load_sentencepiece():
    """Return the package sentencepiece; its models also need TensorFlow's operations."""
    if tf is not None:
        load_tensorflow_text()
    return _load("sentencepiece")


def load_tensorflow_text():
    """Return the package tensorflow_text."""
    return _load("tensorflow_text")


def load_regex():
    """Return the package regex."""
    return _load("regex")


def _load(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"This tokenizer needs the package {name.replace('_', '-')}: "
            "pip install 'keras_attn[text]'"
        ) from error


# All white space of Unicode, for a class: `\s` is ASCII in TensorFlow's expressions.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# Punctuation in Hugging Face's library, which has that of Unicode 8, for a class.
PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"


def replace(text, steps):
    """Apply pairs of a pattern and its replacement, in order, to a string tensor or a str."""
    for pattern, replacement in steps:
        if isinstance(text, str):
            text = load_regex().sub(pattern, replacement, text)
        else:
            text = tf.strings.regex_replace(text, pattern, replacement)
    return text


def normalize(text, form):
    """Return text in a normal form of Unicode, "NFC" or "NFD"."""
    if isinstance(text, str):
        return unicodedata.normalize(form, text)
    return load_tensorflow_text().normalize_utf8(text, form)


def lower(text):
    """Return text in lower case."""
    # Both would turn the last capital sigma of a word into the other small sigma.
    text = replace(text, [("Σ", "σ")])
    return text.lower() if isinstance(text, str) else tf.strings.lower(text, encoding="utf-8")


def valid(text):
    """Return text with U+FFFD in place of the bytes that are not UTF-8."""
    if isinstance(text, bytes):
        return text.decode(errors="replace")
    if isinstance(text, str):
        return text
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
