"""A text as token ids."""

from typing import NamedTuple

import numpy as np

from keras_attn import metrics, text

from ..options import devices_of
from . import tokens


class Corpus(NamedTuple):
    """The splits of a text as token ids, and how many characters these stand for."""

    name: str
    ids: dict
    characters: dict
    tokens: tokens.Tokens

    @classmethod
    def of(cls, name, splits, options, directory):
        """A text's, tokenised, or as a run in that directory has kept it.

        Args:
            name, splits: as `recipes.text.data.read_text` gives them.
            options: with `tokenizer`, `vocabulary_size`, `prepare` and `strategy`.
            directory: str.
        """

        def make():
            tokenizer = train_tokenizer(options.tokenizer, splits["train"], options.vocabulary_size)
            arrays = {}
            for split, part in splits.items():
                arrays[split], arrays[f"{split}_characters"] = encode(tokenizer, part)
            return tokenizer, arrays

        made_of = options.tokenizer, str(options.vocabulary_size), *splits.values()
        kept = tokens.Tokens(directory, tokens.digest(*made_of), make, devices_of(options))
        return cls(
            name,
            {split: kept.arrays[split] for split in splits},
            {split: int(kept.arrays[f"{split}_characters"]) for split in splits},
            kept,
        )

    def characters_per_token(self, split):
        return self.characters[split] / len(self.ids[split])

    def check_rows(self, batch_size, *splits):
        """Refuses a split that has not a token to predict for each row of a batch."""
        for split in splits:
            if len(self.ids[split]) <= batch_size:
                raise ValueError(
                    "Each split must have a token to predict for each row of a batch. "
                    f"Received: {split} with {len(self.ids[split])} tokens, "
                    f"--batch-size {batch_size}."
                )

    def bits_per_character(self):
        """The metric, in which a token counts for what one of the training text stands for."""
        length = self.characters_per_token("train")
        return metrics.BitsPerCharacter([length] * self.tokens.vocabulary_size)


def train_tokenizer(kind, part, vocabulary_size=None):
    """A tokenizer of a text."""
    sentences = [part] if kind == "characters" else part.split("\n")
    return tokenizer_of(sentences, kind, vocabulary_size)


def tokenizer_of(sentences, kind, vocabulary_size=None):
    """A tokenizer of `characters`, or of subwords: `bpe` or `unigram`.

    Raises:
        ValueError: if there is nothing to learn, or `--vocabulary-size` does not fit.
    """
    try:
        if kind == "characters":
            return text.Characters.train(sentences, vocabulary_size)
        return text.SentencePiece.train(sentences, vocabulary_size, kind)
    except ValueError as error:
        if "vocabulary_size" not in str(error):
            raise
        raise ValueError(f"--vocabulary-size does not fit --tokenizer {kind}: {error}") from error


def encode(tokenizer, part):
    """The ids of a text and the number of characters that they stand for.

    Subwords know no line ends: there the mark of an end is that of a line, and runs of spaces
    count as the one that is left of them.
    """
    if isinstance(tokenizer, text.Characters):
        return tokenizer.encode_as_lists([part])[0], len(part)
    rows = tokenizer.encode_as_lists(part.split("\n"))
    characters = sum(len(" ".join(filter(None, line.split(" ")))) for line in part.split("\n"))
    ids = np.concatenate([np.append(row, tokenizer.eos_id) for row in rows])[:-1]
    return ids.astype("int32"), characters + len(rows) - 1


def decode(tokenizer, ids):
    """The text of a list of ids."""
    lines, line = [], []
    for token in [*ids, tokenizer.eos_id]:
        line.append(token)
        if token == tokenizer.eos_id:
            lines.extend(tokenizer.decode_as_strings([line]))
            line = []
    return "\n".join(lines)
