"""A run's token ids: in its directory, made once, or in a corpus that has been prepared."""

import contextlib
import functools
import os
import shutil
import tempfile
import weakref

from keras_attn import text
from keras_attn.distribution.workers import worker_of_strategy
from keras_attn.files import atomic_directory
from keras_attn.text.corpus.manifest import TOKENIZER

FOLDER = "tokens"
# The first id of ordinary tokens, after pad, unk, bos and eos.
FIRST_ID = 4


class TokenFolder:
    """A corpus in files: prepared before, of a run's directory, or made from the text.

    A new corpus is in a temporary folder, so that a run that fails before its first step leaves
    nothing behind, until `save` copies it.

    Args:
        out: str. Directory of the run.
        saved: str. Where the corpus is once it is saved.
        directory: str. Where it is read; another folder for a new corpus.
        manifest: a `keras_attn.text.Manifest`.
    """

    def __init__(self, out, saved, directory, manifest):
        self._out, self.saved = out, saved
        self.directory, self.manifest = directory, manifest
        self._is_new = directory != saved
        if self._is_new:
            # `weakref.finalize` also acts at the end of the process.
            self.discard = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    @classmethod
    def made(cls, out, texts, options, make, devices):
        """Return the tokens that a run in `out` has saved, or make them.

        Args:
            out: str. Directory of the run.
            texts: dict. SHA-256 of the texts, by name.
            options: dict. What else decides the ids, as JSON holds it.
            make: function of a directory, which writes the shards and the tokenizer there and
                returns the names of the shards by split.
            devices: str. The distribution strategy's name.

        Raises:
            ValueError: if there is no corpus of these texts and options, and the strategy has
                several processes, which must all have the same tokens.
        """
        saved = os.path.join(out, FOLDER)
        manifest, problem = _read(saved, texts, options)
        if manifest is not None:
            return cls(out, saved, saved, manifest)
        if devices == "multi_worker" or worker_of_strategy(None)[1] > 1:
            raise ValueError(
                f"{problem}; make it in one process, by the same command with --prepare."
            )
        with contextlib.ExitStack() as stack:
            directory = tempfile.mkdtemp(prefix="tokens-")
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            manifest = text.Manifest.make(directory, make(directory), texts, options)
            stack.pop_all()
        return cls(out, saved, directory, manifest)

    @classmethod
    def prepared(cls, directory, out):
        """Return the tokens of a corpus that has been prepared, for a run in `out`."""
        print("The corpus has a tokenizer; --tokenizer and --vocabulary-size are not used.")
        return cls(out, directory, directory, text.Manifest.read(directory))

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


def _read(saved, texts, options):
    """Return the manifest of a saved corpus and None, or None and the reason."""
    if not os.path.exists(saved):
        return None, f"There is no folder {saved}"
    try:
        manifest = text.Manifest.read(saved)
        if (manifest.texts, manifest.options) != (texts, options):
            return None, f"The folder {saved} has tokens of another text or tokenizer"
        for split in manifest.splits:
            text.TokenFiles(saved, split)
        manifest.load_tokenizer(saved)
    except ValueError as error:
        return None, str(error).rstrip(".")
    return manifest, None
