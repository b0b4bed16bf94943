"""The manifest of a corpus in files: what it holds, of which texts, and what tokenised them."""

import dataclasses
import json
import os

from keras_attn.files import atomic_file
from keras_attn.ops.checks import check_paths
from keras_attn.text.corpus.array_files import CheckedFile, hash_of

MANIFEST, TOKENIZER = "manifest.json", "tokenizer.model"
FORMAT = "keras_attn tokens, 1"
END_DTYPE = "<i8"
ENDINGS = ("bin", "idx")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One `.bin` and `.idx` of a split, as its `.json` describes it.

    Args:
        name: str. That of the files, without their endings.
        tokens, documents, characters: ints. `characters` are those that the tokens stand for.
        bin, idx: str. SHA-256 of the two files.
        dtype: str. Of the ids.
        sides: int. 2 for pairs.
        tool: dict. Versions of what tokenised, by package.
    """

    name: str
    tokens: int
    documents: int
    characters: int
    bin: str
    idx: str
    dtype: str
    sides: int
    tool: dict

    @classmethod
    def read(cls, directory, name):
        """Read the `.json` of a shard."""
        return _as(cls, _read_object(os.path.join(directory, f"{name}.json")), directory)

    def save(self, directory):
        """Write the `.json`, after which the shard counts as done."""
        _write_object(os.path.join(directory, f"{self.name}.json"), dataclasses.asdict(self))

    def files(self, directory):
        """Return its two `CheckedFile`s, of ids and of ends."""
        sizes = self.tokens * id_size(self.dtype), self.documents * self.sides * 8
        return [
            CheckedFile(os.path.join(directory, f"{self.name}.{ending}"), size, sha256)
            for ending, size, sha256 in zip(ENDINGS, sizes, (self.bin, self.idx), strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Description of all shards of a corpus; written last: a directory without one is not a corpus.

    Args:
        vocabulary_size: int. Number of ids.
        tokenizer: str. SHA-256 of the file of the tokenizer.
        texts: dict. SHA-256 of each text, by name.
        options: dict. What else decided the ids, as JSON holds it.
        splits: dict of lists of `Shard`s.
        format: str.
    """

    vocabulary_size: int
    tokenizer: str
    texts: dict
    options: dict
    splits: dict
    format: str = FORMAT

    @classmethod
    def make(cls, directory, splits, texts, options):
        """Write the manifest of shards and of a tokenizer that are in a directory.

        Args:
            directory: str. It holds `tokenizer.model` and the shards.
            splits: dict of lists of the names of shards, in their order.
            texts: dict. SHA-256 of each text, by name.
            options: dict. What else decided the ids, as JSON holds it.

        Returns:
            The `Manifest`.

        Raises:
            ValueError: if a shard is missing, or they differ in dtype, sides or tool.
        """
        from keras_attn import text

        tokenizer = text.load(os.path.join(directory, TOKENIZER))
        made = cls.describe(directory, splits, texts, options, tokenizer)
        made.save(directory)
        return made

    @classmethod
    def describe(cls, directory, splits, texts, options, tokenizer):
        """Return the manifest that `make` writes, with the tokenizer of the directory."""
        path = os.path.join(directory, TOKENIZER)
        shards = {s: [Shard.read(directory, name) for name in names] for s, names in splits.items()}
        every_shard = [shard for part in shards.values() for shard in part]
        _check_alike(directory, every_shard)
        for shard in every_shard:
            shard.files(directory)
        return cls(tokenizer.vocabulary_size, hash_of(path), texts, options, shards)

    def save(self, directory):
        """Write the manifest, after which the corpus is complete."""
        _write_object(os.path.join(directory, MANIFEST), dataclasses.asdict(self))

    @classmethod
    def read(cls, directory, options=None):
        """Read the manifest of a directory.

        Args:
            directory: str.
            options: dict. Those that the corpus must have been made with; None for any.

        Raises:
            ValueError: if there is none, it is damaged, or it has other options.
        """
        check_paths(directory=directory)
        path = os.path.join(directory, MANIFEST)
        if not os.path.exists(path):
            raise ValueError(f"There is no corpus in {directory}: it has no file {MANIFEST}.")
        content = _read_object(path)
        if content.get("format") != FORMAT:
            raise ValueError(
                f"The file {path} is none of the format {FORMAT!r}; prepare the corpus again."
            )
        raw = _as(cls, content, directory)
        shards = {s: [_as(Shard, x, directory) for x in part] for s, part in raw.splits.items()}
        manifest = dataclasses.replace(raw, splits=shards)
        manifest._check_options(path, options)
        return manifest

    def shards(self, directory, split):
        """Return the shards of a split."""
        if split not in self.splits:
            raise ValueError(
                f"The corpus in {directory} has the splits {', '.join(self.splits)}. "
                f"Received: split={split!r}."
            )
        return self.splits[split]

    def load_tokenizer(self, directory):
        """Return the tokenizer of the corpus; refuse another one's file."""
        from keras_attn import text

        path = os.path.join(directory, TOKENIZER)
        if not os.path.exists(path) or hash_of(path) != self.tokenizer:
            raise ValueError(f"The file {path} is missing, or not the tokenizer of its corpus.")
        return text.load(path)

    def total(self, split, name):
        """Return the sum of an attribute of a split's shards, such as "tokens"."""
        return sum(getattr(shard, name) for shard in self.splits[split])

    def _check_options(self, path, options):
        if options is None or options == self.options:
            return
        names = sorted({*options, *self.options})
        differing = [n for n in names if options.get(n) != self.options.get(n)]
        values = ", ".join(
            f"{n}={self.options.get(n)!r}, now {options.get(n)!r}" for n in differing
        )
        raise ValueError(f"The corpus of {path} was made with other options. Received: {values}.")


def id_dtype(vocabulary_size):
    """Return the dtype of ids in files: two bytes if they hold every id, else four."""
    return "<u2" if vocabulary_size <= 65_535 else "<u4"


def id_size(dtype):
    """Return the bytes of an id."""
    return int(dtype[-1])


def _check_alike(directory, shards):
    for name in ("dtype", "sides", "tool"):
        values = [getattr(shard, name) for shard in shards]
        for shard, value in zip(shards, values, strict=True):
            if value != values[0]:
                raise ValueError(
                    f"All shards of the corpus in {directory} must have the same {name}; "
                    f"prepare it again. Received: {values[0]!r} of {shards[0].name} and "
                    f"{value!r} of {shard.name}."
                )


def _as(cls, content, directory):
    try:
        return cls(**content)
    except TypeError as error:
        raise ValueError(
            f"The description of a corpus in {directory} is damaged; prepare it again."
        ) from error


def _read_object(path):
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError as error:
        raise ValueError(f"The file {path} of a corpus is missing.") from error
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"The file {path} is damaged; prepare the corpus again.")
    return content


def _write_object(path, content):
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
