"""A run's token ids: in its directory, made once, or in a corpus that has been prepared."""

import functools
import os
import shutil
import tempfile
import weakref

from keras_attn import text
from keras_attn.distribution.workers import worker_of_strategy
from keras_attn.ops.atomic_files import atomic_directory
from keras_attn.text.token_manifest import TOKENIZER

FOLDER = "tokens"
# The first id of ordinary tokens, after pad, unk, bos and eos.
FIRST_ID = 4


class TokenFolder:
    """A corpus in files, in a run's directory or made from the text.

    A new corpus is in a temporary folder, so that a run that fails before its first step leaves
    nothing behind, until `save` copies it.

    Args:
        out: str. Directory of the run.
        texts: dict. SHA-256 of the texts, by name.
        options: dict. What else decides the ids, as JSON holds it.
        make: function of a directory, which writes the shards and the tokenizer there and returns
            the names of the shards by split.
        devices: str. The distribution strategy's name.

    Attributes:
        directory: str. Where the corpus is read.
        saved: str. Where it is once it is saved.
        manifest: a `keras_attn.text.Manifest`.

    Raises:
        ValueError: if there is no corpus of these texts and options, and the strategy has several
            processes, which must all have the same tokens.
    """

    def __init__(self, out, texts, options, make, devices):
        self._out, self.saved = out, os.path.join(out, FOLDER)
        self.manifest, problem = self._read(texts, options)
        self._is_new = self.manifest is None
        self.directory = self.saved
        if not self._is_new:
            return
        if devices == "multi_worker" or worker_of_strategy(None)[1] > 1:
            raise ValueError(
                f"{problem}; make it in one process, by the same command with --prepare."
            )
        self.directory = tempfile.mkdtemp(prefix="tokens-")
        # `weakref.finalize` also acts at the end of the process.
        self.discard = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self.manifest = text.Manifest.make(self.directory, make(self.directory), texts, options)

    @classmethod
    def prepared(cls, directory, out):
        """Return the tokens of a corpus that has been prepared, for a run in `out`."""
        found = cls.__new__(cls)
        found._out, found.saved = out, directory
        found.directory, found.manifest = directory, text.Manifest.read(directory)
        found._is_new = False
        return found

    @property
    def vocabulary_size(self):
        return self.manifest.vocabulary_size

    @functools.cached_property
    def tokenizer(self):
        return self.manifest.load_tokenizer(self.directory)

    def files(self, split):
        """Return the `TokenFiles` of a split."""
        return text.TokenFiles(self.directory, split)

    def save(self):
        """Copy the tokenizer, and a corpus that is new, to the directory of the run."""
        os.makedirs(self._out, exist_ok=True)
        self.tokenizer.save(os.path.join(self._out, TOKENIZER))
        if not self._is_new:
            return
        shutil.rmtree(self.saved, ignore_errors=True)  # tokens of another text
        with atomic_directory(self.saved) as temporary:
            shutil.copytree(self.directory, temporary, dirs_exist_ok=True)
        self._is_new = False

    def _read(self, texts, options):
        """Return the manifest of the saved corpus and None, or None and the reason."""
        if not os.path.exists(self.saved):
            return None, f"There is no folder {self.saved}"
        try:
            manifest = text.Manifest.read(self.saved)
            if (manifest.texts, manifest.options) != (texts, options):
                return None, f"The folder {self.saved} has tokens of another text or tokenizer"
            for split in manifest.splits:
                text.TokenFiles(self.saved, split)
            manifest.load_tokenizer(self.saved)
        except ValueError as error:
            return None, str(error).rstrip(".")
        return manifest, None


def write_shard(directory, split, tokenizer, pieces):
    """Write a split that is one document, of pieces (ids, number of characters).

    Returns:
        The name of the shard.
    """
    with text.TokenWriter(directory, split, 0, tokenizer) as shard:
        for ids, characters in pieces:
            shard.extend(ids, characters)
        shard.end()
    return shard.name


def save_tokenizer(tokenizer, directory):
    """Write the tokenizer of a corpus."""
    tokenizer.save(os.path.join(directory, TOKENIZER))
