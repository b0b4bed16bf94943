"""Vocabularies and their files, for programs that do without Keras and TensorFlow."""

import base64
import collections
import dataclasses
import io
import itertools
import json
import re

import numpy as np

REPLACEMENT = "\ufffd"  # which stands for unknown characters
UNK_ID, EOS_ID, FIRST_ID = 1, 3, 4  # the ids below the first are special tokens


def is_learnable(character):
    """Return True for a character that a vocabulary can hold."""
    return character != REPLACEMENT and not 0xD800 <= ord(character) <= 0xDFFF


def writable(text):
    """Return a str with U+FFFD in place of each lone surrogate, which UTF-8 cannot write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", REPLACEMENT, text)
    return text


def most_frequent_characters(texts, limit=None):
    """Return the characters of an iterable of str, the most frequent first, as one str."""
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    ranked = sorted(filter(is_learnable, counts), key=lambda c: (-counts[c], c))
    if not ranked:
        raise ValueError("`sentences` holds no character to learn.")
    return "".join(ranked[:limit])


def write_characters(characters):
    """Return the content of a vocabulary's file."""
    return json.dumps({"characters": characters}, ensure_ascii=False).encode()


def read_characters(content):
    """Return the characters in a file's content; raise ValueError if it is no vocabulary."""
    try:
        characters = json.loads(content.decode())["characters"]
    except (ValueError, KeyError, TypeError):
        characters = None
    if not isinstance(characters, str):
        raise ValueError("This is not a vocabulary of characters.")
    return characters


def character_table(characters):
    """Return ids by code point, with an unknown one at the end for all greater code points."""
    codes = list(map(ord, characters))
    ids = np.full(max(codes) + 2, UNK_ID, "int32")
    ids[codes] = np.arange(FIRST_ID, FIRST_ID + len(characters))
    return ids


def split_characters(text, table):
    """Return the ids of a str as an int32 array."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return table[np.minimum(codes, len(table) - 1)]


def write_config(class_name, config):
    """Return the content of a tokenizer's file: its class and the arguments of its constructor."""
    content = {"class_name": class_name, "config": config}
    return json.dumps(content, ensure_ascii=False, default=_plain).encode()


def class_name_of(content):
    """Return the name of the class in a file's content, or None."""
    try:
        return json.loads(content)["class_name"]
    except (ValueError, KeyError, TypeError):
        return None


def read_config(class_name, content):
    """Return the arguments in a file's content; raise ValueError if it is of another class."""
    if class_name_of(content) != class_name:
        raise ValueError(f"This is no file of a {class_name}.")
    config = json.loads(content, object_hook=_with_bytes).get("config")
    if not isinstance(config, dict):
        raise ValueError(f"The file of a {class_name} is damaged: it has no config.")
    return config


def _plain(value):
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return dataclasses.asdict(value)


def _with_bytes(value):
    return base64.b64decode(value["base64"]) if list(value) == ["base64"] else value


PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)


def train_sentencepiece(
    sentences,
    vocabulary_size,
    model_type="unigram",
    character_coverage=1.0,
    normalization="identity",
):
    """Return the bytes of a model; the arguments are those of `SentencePiece.train`."""
    import sentencepiece

    # The trainer silently drops an empty sentence, and one with a line end in it.
    texts = (writable(sentence).replace("\n", " ").strip() for sentence in sentences)
    lines = [text for text in texts if text]
    if not lines:
        raise ValueError("`sentences` holds no text to learn a vocabulary from.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            model_type=model_type,
            character_coverage=character_coverage,
            normalization_rule_name=normalization,
            # The trainer refuses a limit below ten.
            max_sentence_length=max(10, *(len(line.encode()) for line in lines)),
            unk_surface=REPLACEMENT,  # the library's own " \u2047 " would add spaces around it
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise _readable(error, vocabulary_size, character_coverage, normalization) from error
    return model.getvalue()


def _readable(error, vocabulary_size, character_coverage, normalization):
    """Return the trainer's failure as an error about our arguments."""
    received = f"vocabulary_size={vocabulary_size}, character_coverage={character_coverage}"
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if too_small:
        return ValueError(
            f"`vocabulary_size` must be at least {too_small[1]}, to hold the four special tokens "
            f"and every character that `character_coverage` asks for. Received: {received}."
        )
    return ValueError(
        f"SentencePiece cannot train: {error}. "
        f"Received: {received}, normalization={normalization!r}."
    )
