"""Writer of one shard of a corpus in files."""

import contextlib
import hashlib
import os

import numpy as np

from keras_attn.files import atomic_file
from keras_attn.ops.checks import check_paths, check_sizes
from keras_attn.text.corpus.manifest import END_DTYPE, ENDINGS, Shard, id_dtype


class TokenWriter:
    """Writer of one shard of a corpus: its documents, or pairs of texts, as token ids.

        part-00003-train.bin: ids, one document after another, of two bytes if V <= 65,535
        part-00003-train.idx: int64, where each document ends; of a pair where each side does
        part-00003-train.json: their numbers, their SHA-256 and the versions of what tokenised

    Use it to write a corpus of your own for `TokenFiles`.

    It is a context manager. The files appear complete, or not at all after an error, and the
    `.json` last: a shard that has one is done. Memory does not grow with the shard.
    `text.Manifest.make` joins the shards of a directory.

    Args:
        directory: str. It is made if it is missing.
        split: str, such as "train".
        part: int. Number of the shard in its split.
        tokenizer: a `Tokenizer`, whose `encode_as_lists` makes the ids.
        sides: int. 2 for pairs.

    Raises:
        ValueError: if a number is out of range, ids are no integers, or the last document or pair
            has no end.

    Example:
        >>> import tempfile
        >>> from keras_attn import text
        >>> folder, tokenizer = tempfile.mkdtemp(), text.Characters("abc")
        >>> with text.TokenWriter(folder, "train", 0, tokenizer) as shard:
        ...     for line in ["ab", "c"]:
        ...         shard.add(*tokenizer.encode_as_lists([line]), characters=len(line))
        >>> shard.name, shard.facts.tokens, shard.facts.documents
        ('part-00000-train', 3, 2)
    """

    def __init__(self, directory, split, part, tokenizer, sides=1):
        check_paths(directory=directory)
        check_sizes(least=0, part=part)
        check_sizes(sides=sides)
        self.name = f"part-{part:05d}-{split}"
        self.facts = None
        self._directory, self._sides, self._tool = directory, sides, tokenizer.tool
        self._vocabulary_size = tokenizer.vocabulary_size
        self._dtype = id_dtype(self._vocabulary_size)
        self._tokens = self._ended = self._ends = self._characters = 0

    def __enter__(self):
        os.makedirs(self._directory, exist_ok=True)
        with contextlib.ExitStack() as stack:
            paths = [os.path.join(self._directory, f"{self.name}.{end}") for end in ENDINGS]
            temporary = [stack.enter_context(atomic_file(path)) for path in paths]
            self._files = [stack.enter_context(open(path, "wb")) for path in temporary]
            self._hashes = [hashlib.sha256() for _ in ENDINGS]
            # The last is called first: a shard that is written again is not done until it is.
            stack.push(self._remove_facts)
            stack.push(self._check_ends)
            self._stack = stack.pop_all()
        return self

    def add(self, *ids, characters=0):
        """Write a document, or the sides of a pair.

        Args:
            *ids: int arrays (n,), one for each side, as they are to be read. A corpus of a language
                model holds the end mark of each document; pairs have no special tokens.
            characters: int. The characters that they stand for.
        """
        if len(ids) != self._sides:
            raise ValueError(f"`ids` must be {self._sides} arrays. Received: {len(ids)}.")
        sides = [self._checked(side) for side in ids]  # all before the first is written
        for side in sides:
            self._append(side)
            self.end()
        self._characters += characters

    def extend(self, ids, characters=0):
        """Write a part of a document, or of a side, that may be too long for the memory."""
        self._append(self._checked(ids))
        self._characters += characters

    def _append(self, ids):
        self._tokens += ids.size
        self._write(0, ids.astype(self._dtype))

    def _checked(self, ids):
        ids = np.asarray(ids)
        if ids.ndim != 1 or ids.size and not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                "`ids` must be arrays of integers with one axis. "
                f"Received: shape={ids.shape}, dtype={ids.dtype}."
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < self._vocabulary_size:
            raise ValueError(
                f"`ids` must be in [0, {self._vocabulary_size}). "
                f"Received: ids from {ids.min()} to {ids.max()}."
            )
        return ids

    def end(self):
        """Mark the end of the document, or side, that `extend` has written."""
        self._ends, self._ended = self._ends + 1, self._tokens
        self._write(1, np.array(self._tokens, END_DTYPE))

    def _check_ends(self, kind, *_):
        if kind is not None:
            return
        if self._tokens > self._ended:
            raise ValueError(
                "The last document must be ended by `end`. "
                f"Received: {self._tokens - self._ended} tokens after the last end."
            )
        if self._ends % self._sides:
            raise ValueError(
                f"Each document must have {self._sides} sides. Received: {self._ends} sides in all."
            )

    def _remove_facts(self, kind, *_):
        if kind is None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self._directory, f"{self.name}.json"))

    def _write(self, index, array):
        content = array.tobytes()
        self._files[index].write(content)
        self._hashes[index].update(content)

    def __exit__(self, *error):
        self._stack.__exit__(*error)
        if error[0] is None:
            numbers = self._tokens, self._ends // self._sides, self._characters
            hashes = (one.hexdigest() for one in self._hashes)
            self.facts = Shard(
                self.name, *numbers, *hashes, self._dtype, self._sides, dict(self._tool)
            )
            self.facts.save(self._directory)
