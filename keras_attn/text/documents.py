"""The documents, or pairs of texts, of a corpus in files."""

import itertools

import numpy as np

from keras_attn.text.array_files import ArrayFiles
from keras_attn.text.token_manifest import END_DTYPE


class Documents:
    """The documents of a corpus in files; item i is read when it is asked for.

        documents[i] = ids (n,) of a document, or a tuple of the two sides of a pair

    Args:
        ids: `ArrayFiles` of the token ids.
        files: list of the `CheckedFile`s of each shard's ends.
        tokens: list of the tokens of each shard.
        sides: int. 2 for pairs; an attribute too.
    """

    def __init__(self, ids, files, tokens, sides):
        self._ids, self.sides = ids, sides
        self._ends = ArrayFiles(files, END_DTYPE, "int64")
        # Ends count from the start of their shard.
        self._records = np.cumsum([0, *(file.size // 8 for file in files)])
        self._starts = [0, *itertools.accumulate(tokens)]

    def __len__(self):
        return len(self._ends) // self.sides

    def __getitem__(self, index):
        sides = self.item(range(len(self))[index])
        return sides[0] if self.sides == 1 else sides

    def item(self, index):
        """Return the sides of a document, a tuple of arrays."""
        starts = self.starts(index, index + 1)
        return tuple(self._ids[a:b] for a, b in itertools.pairwise(starts.tolist()))

    def lengths(self, start, stop):
        """Return the number of tokens of each side of documents, int64 (n, sides)."""
        return np.diff(self.starts(start, stop)).reshape(-1, self.sides)

    def starts(self, start, stop):
        """Return where the sides of documents begin among all ids, and where the last one ends."""
        first, last = start * self.sides, stop * self.sides
        before = max(first - 1, 0)
        shards = np.searchsorted(self._records, np.arange(before, last), "right") - 1
        ends = self._ends[before:last] + np.take(self._starts, shards)
        return ends if first else np.concatenate([[0], ends])
