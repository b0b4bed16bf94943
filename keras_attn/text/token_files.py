"""A corpus in files, read as one array of token ids, or as documents."""

from keras_attn.text.array_files import ArrayFiles
from keras_attn.text.documents import Documents
from keras_attn.text.token_manifest import Manifest


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
