"""Tokenizers that encode documents without Keras, as `keras_attn.text` does with it."""

import itertools
import sys
from importlib import metadata

import numpy as np

from keras_attn.text.tokenizers import vocabularies
from keras_attn.text.tokenizers.vocabularies import train_sentencepiece

from ..text.subwords import count_characters

LONGEST_LINE = 16_384  # characters; SentencePiece's memory grows with a line's length


def train(kind, texts, vocabulary_size=None):
    """Return the file of a new tokenizer as bytes.

    Args:
        kind: one of `options.KINDS`.
        texts: list of str.
        vocabulary_size: int, which characters may do without.
    """
    try:
        if kind == "characters":
            limit = None if vocabulary_size is None else vocabulary_size - vocabularies.FIRST_ID
            characters = vocabularies.most_frequent_characters(texts, limit)
            return vocabularies.write_characters(characters)
        _sentencepiece()
        lines = (piece for text in texts for line in text.split("\n") for piece in _pieces(line))
        return train_sentencepiece(lines, vocabulary_size, kind)
    except ValueError as error:
        raise ValueError(
            f"--tokenizer {kind} --vocabulary-size {vocabulary_size}: {error}"
        ) from error


class Encoder:
    """Token ids of documents, each with the end mark.

    Subwords have no token for a line end: the end mark stands for it, as in
    `recipes.language_model`, and a run of spaces counts as one space. Characters have one, and the
    end mark follows the document alone.

    Args:
        content: bytes. The file of a tokenizer. Characters and SentencePiece are read here, all
            others by `keras_attn.text`, which imports Keras.
        path: str. Of the file.

    Attributes:
        vocabulary_size: int.
        tool: dict. Versions of what tokenizes, by package.
    """

    def __init__(self, content, path):
        self.tool = {"keras_attn": sys.modules["keras_attn"].__version__}
        self._encode = self._lines
        if not content.startswith(b"{"):
            self._read_sentencepiece(content)
        elif vocabularies.class_name_of(content) is None:
            characters = vocabularies.read_characters(content)
            self._table = vocabularies.character_table(characters)
            self.vocabulary_size = vocabularies.FIRST_ID + len(characters)
            self._end, self._encode = vocabularies.EOS_ID, self._characters
        else:
            from keras_attn import text

            tokenizer = text.load(path)
            self.vocabulary_size, self.tool = tokenizer.vocabulary_size, tokenizer.tool
            self._rows = lambda lines: [row.tolist() for row in tokenizer.encode_as_lists(lines)]
            self._end = tokenizer.eos_id
        if self._end is None or self._end < 0:
            raise ValueError(f"The tokenizer {path} has no end mark, which divides documents.")

    def __call__(self, text):
        """Return the ids of a cleaned document, and the characters that they stand for."""
        return self._encode(text)

    def _read_sentencepiece(self, content):
        package = _sentencepiece()
        processor = package.SentencePieceProcessor(model_proto=content)
        self.vocabulary_size, self._end = processor.get_piece_size(), processor.eos_id()
        # Not as one list: the package would start threads at each call, and wait for them.
        self._rows = lambda lines: [processor.encode(line) for line in lines]
        self.tool["sentencepiece"] = metadata.version("sentencepiece")

    def _characters(self, text):
        return np.append(vocabularies.split_characters(text, self._table), self._end), len(text) + 1

    def _lines(self, text):
        lines, rows = text.split("\n"), []
        if max(map(len, lines)) <= LONGEST_LINE:
            rows = self._rows(lines)
        else:
            for line in lines:
                rows.append([*itertools.chain.from_iterable(self._rows(_pieces(line)))])
        for row in rows:
            row.append(self._end)
        return np.fromiter(itertools.chain.from_iterable(rows), "int32"), count_characters(text) + 1


def _pieces(line):
    """Return a line in pieces of limited length, each but the first from a space on."""
    pieces = []
    while len(line) > LONGEST_LINE:
        end = line.rfind(" ", 1, LONGEST_LINE)
        end = LONGEST_LINE if end < 0 else end
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]


def _sentencepiece():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            "This tokenizer needs the package sentencepiece: pip install 'keras_attn[text]'"
        ) from error
    return sentencepiece
