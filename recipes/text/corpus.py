"""A text as token ids."""

import itertools
from typing import NamedTuple

import numpy as np

from keras_attn import metrics, text

from ..common.files import SPLITS
from .subwords import count_characters
from .tokens import TokenFolder, save_tokenizer, write_shard

# Of a longer text, a tokenizer of subwords learns from the first lines.
_MOST_CHARACTERS = 50_000_000
_LINES = 1024


class Corpus(NamedTuple):
    """The splits of a text as `TokenFiles`, and the number of characters that they stand for."""

    name: str
    ids: dict
    characters: dict
    tokens: TokenFolder

    @classmethod
    def load(cls, text, options):
        """Tokenise a `Text` of `read_text`, or read the tokens that its run has kept.

        Raises:
            ValueError: if a file is damaged or not UTF-8, or a prepared corpus is not one of texts.
        """

        def make(directory):
            splits = text.splits()
            tokenizer = train_tokenizer(options.tokenizer, splits["train"], options.vocabulary_size)
            save_tokenizer(tokenizer, directory)
            return {
                split: [write_shard(directory, split, tokenizer, encode_lines(tokenizer, part))]
                for split, part in splits.items()
            }

        if text.corpus is not None:
            tokens = TokenFolder.prepared(text.corpus, options.out)
        else:
            how = {"tokenizer": options.tokenizer, "vocabulary_size": options.vocabulary_size}
            tokens = TokenFolder.made(options.out, text.hashes, how, make, options.devices)
        ids = {split: tokens.files(split) for split in SPLITS}
        if any(files.documents.sides != 1 for files in ids.values()):
            raise ValueError(f"The corpus in {tokens.directory} holds pairs, not texts.")
        characters = {split: tokens.manifest.total(split, "characters") for split in SPLITS}
        return cls(text.name, ids, characters, tokens)

    def characters_per_token(self, split):
        return self.characters[split] / len(self.ids[split])

    def check_rows(self, batch_size, *splits):
        """Refuse a split with fewer tokens to predict than a batch has rows."""
        for split in splits:
            if len(self.ids[split]) <= batch_size:
                raise ValueError(
                    "Each split must have a token to predict for each row of a batch. "
                    f"Received: {split} with {len(self.ids[split])} tokens, "
                    f"--batch-size {batch_size}."
                )

    def bits_per_character(self):
        """Return a metric that counts each token as the average token of the training text."""
        length = self.characters_per_token("train")
        return metrics.BitsPerCharacter([length] * self.tokens.vocabulary_size)


def train_tokenizer(kind, part, vocabulary_size=None):
    """Train a tokenizer on `TextFiles`."""
    if kind == "characters":
        return train_on_sentences(part.blocks(), kind, vocabulary_size)
    return train_on_sentences(first_lines(part.lines()), kind, vocabulary_size)


def first_lines(lines):
    """Yield the lines of which a trainer of subwords learns: it holds them all in memory."""
    characters = 0
    for line in lines:
        yield line
        characters += len(line)
        if characters >= _MOST_CHARACTERS:
            return


def train_on_sentences(sentences, kind, vocabulary_size=None):
    """Train a tokenizer of `characters`, or of subwords: `bpe` or `unigram`."""
    try:
        if kind == "characters":
            return text.Characters.train(sentences, vocabulary_size)
        return text.SentencePiece.train(sentences, vocabulary_size, kind)
    except ValueError as error:
        if "vocabulary_size" not in str(error):
            raise
        raise ValueError(f"--vocabulary-size does not fit --tokenizer {kind}: {error}") from error


def encode_lines(tokenizer, part):
    """Yield pieces of the ids of `TextFiles`, and the number of characters that they stand for.

    Subwords have no token for a line end: the end mark stands for it, and a run of spaces counts as
    the one that is left of it.
    """
    if isinstance(tokenizer, text.Characters):
        for block in part.blocks():
            yield tokenizer.encode_as_lists([block])[0], len(block)
        return
    is_first, remaining = True, part.lines()
    while lines := [*itertools.islice(remaining, _LINES)]:
        rows = tokenizer.encode_as_lists(lines)
        characters = count_characters("\n".join(lines)) + 1
        ids = np.concatenate([np.insert(row, 0, tokenizer.eos_id) for row in rows])
        yield ids[is_first:], characters - is_first
        is_first = False


def decode(tokenizer, ids):
    """Return the text of a list of ids."""
    lines, line = [], []
    for token in [*ids, tokenizer.eos_id]:
        line.append(token)
        if token == tokenizer.eos_id:
            lines.extend(tokenizer.decode_as_strings([line]))
            line = []
    return "\n".join(lines)
