"""A corpus in files, read as one array of token ids, or as documents."""

import copy
import itertools

import numpy as np

from keras_attn.text.corpus.array_files import ArrayFiles
from keras_attn.text.corpus.manifest import END_DTYPE, Manifest


class TokenFiles(ArrayFiles):
    """Token ids of a split of a corpus in files, as one array that stays on the disk.

        files[a:b] = ids a, ..., b - 1 of all shards, one after another

    Use it for a corpus that is larger than the memory, and for any smaller one.

    A slice is an int32 array, read by `os.pread`; nothing else is kept, so `len` and any order of
    reading cost no memory. The size of each file is compared with the manifest at once. Its SHA-256
    is compared when something of it is first read, once a process, at some 1.4 GB/s. A slice of n
    tokens takes O(n + log number of files).

    Args:
        directory: str. It has a `manifest.json`.
        split: str. One of its splits.

    Attributes:
        documents: a `Documents`, the same tokens by document or by pair.
        manifest: a `Manifest`.

    Raises:
        ValueError: if there is no corpus or no such split, or a file is missing, cut or altered.

    Example:
        >>> import tempfile
        >>> from keras_attn import text
        >>> folder, tokenizer = tempfile.mkdtemp(), text.Characters("abc")
        >>> tokenizer.save(f"{folder}/tokenizer.model")
        >>> with text.TokenWriter(folder, "train", 0, tokenizer) as shard:
        ...     for ids in tokenizer.encode_as_lists(["ab", "c"]):
        ...         shard.add(ids)
        >>> _ = text.Manifest.make(folder, {"train": [shard.name]}, texts={}, options={})
        >>> files = text.TokenFiles(folder, "train")
        >>> len(files), files[1:3].tolist(), files.documents[1].tolist()
        (3, [5, 6], [6])
    """

    def __init__(self, directory, split="train"):
        self.manifest = Manifest.read(directory)
        shards = self.manifest.shards(directory, split)
        both = [shard.files(directory) for shard in shards]
        dtype = shards[0].dtype if shards else "<u2"
        super().__init__([ids for ids, _ in both], dtype, "int32")
        ends = [ends for _, ends in both]
        sides = shards[0].sides if shards else 1
        self.documents = Documents(self, ends, [s.tokens for s in shards], sides)


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
        self._ids, self.sides, self._side_order = ids, sides, 1
        self._ends = ArrayFiles(files, END_DTYPE, "int64")
        # Ends count from the start of their shard.
        self._records = np.cumsum([0, *(file.size // 8 for file in files)])
        self._starts = [0, *itertools.accumulate(tokens)]

    def __len__(self):
        return len(self._ends) // self.sides

    def __getitem__(self, index):
        sides = self.item(range(len(self))[index])
        return sides[0] if self.sides == 1 else sides

    def swapped(self):
        """Return the same pairs from target to source: the first side is the second one here."""
        other = copy.copy(self)
        other._side_order = -self._side_order
        return other

    def item(self, index):
        """Return the sides of a document, a tuple of arrays."""
        starts = self.starts(index, index + 1)
        sides = tuple(self._ids[a:b] for a, b in itertools.pairwise(starts.tolist()))
        return sides[:: self._side_order]

    def lengths(self, start, stop):
        """Return the number of tokens of each side of documents, int64 (n, sides)."""
        return np.diff(self.starts(start, stop)).reshape(-1, self.sides)[:, :: self._side_order]

    def starts(self, start, stop):
        """Return where the sides of documents begin among all ids, and where the last one ends.

        They are in the order of the files, also of pairs that are swapped.
        """
        first, last = start * self.sides, stop * self.sides
        before = max(first - 1, 0)
        shards = np.searchsorted(self._records, np.arange(before, last), "right") - 1
        ends = self._ends[before:last] + np.take(self._starts, shards)
        return ends if first else np.concatenate([[0], ends])
