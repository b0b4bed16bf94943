"""Token ids of a text, made once and kept in a file."""

import os

import numpy as np

from keras_attn import text
from keras_attn.ops.atomic_files import atomic_file

FILE_NAME, TOKENIZER = "tokens.npz", "tokenizer.model"
# The first id of ordinary tokens, after pad, unk, bos and eos.
FIRST_ID = 4


class TokenCache:
    """Arrays of token ids, read from a run's directory or made from the text.

    Args:
        directory: str. The run's.
        digest: str. Hash of the text and of the tokenizer's kind.
        make: function of no arguments that returns a tokenizer and a dict of arrays.
        devices: str. The distribution strategy's name.

    Attributes:
        arrays: dict.

    Raises:
        ValueError: if there is no valid file and the strategy has several processes, which must
            all have the same tokens.
    """

    def __init__(self, directory, digest, make, devices):
        self._directory, self._digest = directory, digest
        self._tokenizer = None
        self.arrays, problem = self._read()
        self._is_new = self.arrays is None
        if not self._is_new:
            return
        if devices == "multi_worker":
            raise ValueError(
                f"{problem}; make it in one process, by the same command with --prepare."
            )
        self._tokenizer, self.arrays = make()
        self.arrays["vocabulary_size"] = np.array(self._tokenizer.vocabulary_size)

    @property
    def vocabulary_size(self):
        return int(self.arrays["vocabulary_size"])

    @property
    def nbytes(self):
        """Size of the arrays in memory."""
        return sum(np.asarray(array).nbytes for array in self.arrays.values())

    @property
    def tokenizer(self):
        if self._tokenizer is None:
            self._tokenizer = text.load(self._path(TOKENIZER))
        return self._tokenizer

    def save(self):
        """Write new arrays and their tokenizer; the arrays come last."""
        if not self._is_new:
            return
        os.makedirs(self._directory, exist_ok=True)
        self.tokenizer.save(self._path(TOKENIZER))
        with atomic_file(self._path(FILE_NAME)) as temporary:
            np.savez(temporary, digest=np.array(self._digest), **self.arrays)

    def _read(self):
        """Return the arrays of the file and None, or None and the reason."""
        path = self._path(FILE_NAME)
        if not os.path.exists(path):
            return None, f"There is no file {path}"
        try:
            with np.load(path) as file:
                arrays = {name: file[name] for name in file.files}
            if str(arrays.pop("digest")) == self._digest:
                return arrays, None
        except Exception:  # NumPy, zlib and zipfile raise many kinds on damaged bytes
            return None, f"The file {path} is damaged"
        return None, f"The file {path} has the tokens of another text or tokenizer"

    def _path(self, name):
        return os.path.join(self._directory, name)


def concatenate_rows(rows):
    """Return rows of ids of different length as two arrays: all ids, and where each row ends."""
    return np.concatenate([*rows, np.empty(0, "int32")]), np.cumsum([len(row) for row in rows])


def split_rows(ids, ends):
    """Undo `concatenate_rows`."""
    return np.split(ids, ends)[:-1]
