"""Regular expressions that TensorFlow's operations and Python's package `regex` read alike."""

import unicodedata

from keras_attn.text.packages import load_regex, load_tensorflow_text
from keras_attn.text.rows import tf

# All white space of Unicode, for a class: `\s` is ASCII in TensorFlow's expressions.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


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
