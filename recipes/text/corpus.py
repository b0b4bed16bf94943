"""A text as token ids."""

from typing import NamedTuple

import numpy as np

from keras_attn import metrics, text

from .. import files
from .tokens import TokenCache


class Corpus(NamedTuple):
    """The splits of a text as token ids, and the number of characters that they stand for."""

    name: str
    ids: dict
    characters: dict
    tokens: TokenCache

    @classmethod
    def load(cls, name, splits, options):
        """Tokenise a text of `read_text`, or read the tokens that its run has kept."""

        def make():
            tokenizer = train_tokenizer(options.tokenizer, splits["train"], options.vocabulary_size)
            arrays = {}
            for split, part in splits.items():
                arrays[split], arrays[f"{split}_characters"] = encode(tokenizer, part)
            return tokenizer, arrays

        digest = files.digest(options.tokenizer, str(options.vocabulary_size), *splits.values())
        tokens = TokenCache(options.out, digest, make, options.devices)
        return cls(
            name,
            {split: tokens.arrays[split] for split in splits},
            {split: int(tokens.arrays[f"{split}_characters"]) for split in splits},
            tokens,
        )

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
    """Train a tokenizer on a text."""
    sentences = [part] if kind == "characters" else part.split("\n")
    return train_on_sentences(sentences, kind, vocabulary_size)


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


def encode(tokenizer, part):
    """Return the ids of a text and the number of characters that they stand for.

    Subwords have no token for a line end: the end mark stands for it, and a run of spaces counts as
    the one that is left of it.
    """
    if isinstance(tokenizer, text.Characters):
        return tokenizer.encode_as_lists([part])[0], len(part)
    lines = part.split("\n")
    rows = tokenizer.encode_as_lists(lines)
    characters = sum(len(" ".join(filter(None, line.split(" ")))) for line in lines)
    ids = np.concatenate([np.append(row, tokenizer.eos_id) for row in rows])[:-1]
    return ids.astype("int32"), characters + len(rows) - 1


def decode(tokenizer, ids):
    """Return the text of a list of ids."""
    lines, line = [], []
    for token in [*ids, tokenizer.eos_id]:
        line.append(token)
        if token == tokenizer.eos_id:
            lines.extend(tokenizer.decode_as_strings([line]))
            line = []
    return "\n".join(lines)
