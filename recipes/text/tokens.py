"""A text's token ids, made once and kept in a file."""

import hashlib
import os

import numpy as np

from keras_attn import text
from keras_attn.ops.atomic_files import atomic_file

FILE_NAME, TOKENIZER = "tokens.npz", "tokenizer.model"
# The first id that stands for text, after the marks that all tokenizers have.
FIRST_ID = 4


class Tokens:
    """Arrays made of a text by a tokenizer, or as a run's directory keeps them.

    Args:
        directory: str. The run's.
        digest: str. What tells the text and the tokenizer's kind from others.
        make: function of no arguments that gives a tokenizer and a dict of arrays.
        strategy: str. What the run is shared out by.

    Attributes:
        arrays: dict.

    Raises:
        ValueError: if they are missing and there are several processes, which need the same ones.
    """

    def __init__(self, directory, digest, make, strategy):
        self._directory, self._digest = directory, digest
        self._tokenizer = None
        self.arrays, problem = self._kept()
        self._made = self.arrays is None
        if not self._made:
            return
        if strategy == "multi_worker":
            raise ValueError(
                f"{problem}; one process makes it, started with the same command and --prepare."
            )
        self._tokenizer, self.arrays = make()
        self.arrays["vocabulary_size"] = np.array(self._tokenizer.vocabulary_size)

    @property
    def vocabulary_size(self):
        return int(self.arrays["vocabulary_size"])

    @property
    def tokenizer(self):
        if self._tokenizer is None:
            self._tokenizer = text.load(self._path(TOKENIZER))
        return self._tokenizer

    def save(self):
        """Keeps what was made; each file appears complete or not at all, the tokens last."""
        if not self._made:
            return
        os.makedirs(self._directory, exist_ok=True)
        self.tokenizer.save(self._path(TOKENIZER))
        with atomic_file(self._path(FILE_NAME)) as temporary:
            np.savez(temporary, digest=np.array(self._digest), **self.arrays)

    def _kept(self):
        """The arrays, or None and why."""
        path = self._path(FILE_NAME)
        if not os.path.exists(path):
            return None, f"There is no file {path}"
        try:
            with np.load(path) as file:
                arrays = {name: file[name] for name in file.files}
            if str(arrays.pop("digest")) == self._digest:
                return arrays, None
        except Exception:  # whatever NumPy, zlib and zipfile say of other bytes
            return None, f"The file {path} is damaged"
        return None, f"The file {path} has the tokens of another text or tokenizer"

    def _path(self, name):
        return os.path.join(self._directory, name)


def digest(*parts):
    """What tells one sequence of str from another."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode()
        found.update(len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


def joined(rows):
    """Rows of ids of different length as two arrays: all ids, and where rows end."""
    return np.concatenate([*rows, np.empty(0, "int32")]), np.cumsum([len(row) for row in rows])


def parted(ids, ends):
    """The inverse of `joined`."""
    return np.split(ids, ends)[:-1]
