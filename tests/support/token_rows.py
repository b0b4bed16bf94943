"""Rows of ids that tokenizers give, without padding, and compared with Hugging Face's."""

import tensorflow as tf


def rows_of(ids, lengths):
    """Return padded ids as lists."""
    return [row[:length].tolist() for row, length in zip(ids.numpy(), lengths.numpy(), strict=True)]


def differences(model, tokenizer, lines):
    """Return the lines, as bytes, of which the library's tokenizer `model` gives other ids."""
    texts = [line.decode(errors="replace") for line in lines]
    expected = [encoding.ids for encoding in model.encode_batch(texts)]
    found = rows_of(*tokenizer.encode(tf.constant(lines)))
    return [line for line, a, b in zip(lines, expected, found, strict=True) if a != b]
