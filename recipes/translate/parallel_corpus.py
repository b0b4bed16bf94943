"""Pairs of sentences as token ids."""

from typing import NamedTuple

from ..options import devices_of
from ..text import tokens
from ..text.corpus import tokenizer_of

# What is learned from; the other splits are tests, which are only translated.
SPLITS = ("train", "val")


class ParallelCorpus(NamedTuple):
    """The pairs to learn from as token ids: by split the sources and the targets."""

    ids: dict
    tokens: tokens.Tokens

    @classmethod
    def of(cls, splits, options, directory):
        """Those of a task, tokenised, or as a run in that directory has kept them.

        Args:
            splits: dict of lists of (source, target).
            options: with `tokenizer`, `vocabulary_size`, `prepare` and `strategy`.
            directory: str.
        """
        sides = {split: tuple(zip(*splits[split], strict=True)) for split in SPLITS}

        def make():
            sentences = [sentence for pair in splits["train"] for sentence in pair]
            most = None if options.tokenizer == "characters" else options.vocabulary_size
            tokenizer = tokenizer_of(sentences, options.tokenizer, most)
            arrays = {}
            for split in SPLITS:
                for name, side in zip(_names(split), sides[split], strict=True):
                    rows = tokenizer.encode_as_lists(side)
                    arrays[name], arrays[f"{name}_ends"] = tokens.joined(rows)
            return tokenizer, arrays

        sentences = [sentence for pair in sides.values() for side in pair for sentence in side]
        made_of = options.tokenizer, str(options.vocabulary_size), *sentences
        kept = tokens.Tokens(directory, tokens.digest(*made_of), make, devices_of(options))
        ids = {
            split: [
                tokens.parted(kept.arrays[name], kept.arrays[f"{name}_ends"])
                for name in _names(split)
            ]
            for split in SPLITS
        }
        return cls(ids, kept)


def _names(split):
    return f"{split}_sources", f"{split}_targets"
