"""Ids of characters, without Keras and TensorFlow."""

import collections
import itertools
import json

import numpy as np

REPLACEMENT = "\ufffd"  # which stands for unknown characters
UNK_ID, EOS_ID, FIRST_ID = 1, 3, 4  # the ids below the first are special tokens


def may_learn(character):
    """Return True for a character that a vocabulary can hold."""
    return character != REPLACEMENT and not 0xD800 <= ord(character) <= 0xDFFF


def most_frequent(texts, limit=None):
    """Return the characters of an iterable of str, the most frequent first, as one str."""
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    ranked = sorted(filter(may_learn, counts), key=lambda c: (-counts[c], c))
    if not ranked:
        raise ValueError("`sentences` holds no character to learn.")
    return "".join(ranked[:limit])


def write(characters):
    """Return the content of a vocabulary's file."""
    return json.dumps({"characters": characters}, ensure_ascii=False).encode()


def read(content):
    """Return the characters in a file's content; raise ValueError if it is no vocabulary."""
    try:
        characters = json.loads(content.decode())["characters"]
    except (ValueError, KeyError, TypeError):
        characters = None
    if not isinstance(characters, str):
        raise ValueError("This is not a vocabulary of characters.")
    return characters


def id_table(characters):
    """Return ids by code point, with an unknown one at the end for all greater code points."""
    codes = list(map(ord, characters))
    ids = np.full(max(codes) + 2, UNK_ID, "int32")
    ids[codes] = np.arange(FIRST_ID, FIRST_ID + len(characters))
    return ids


def split(text, table):
    """Return the ids of a str as an int32 array."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return table[np.minimum(codes, len(table) - 1)]
