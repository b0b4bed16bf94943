"""Pairs of a corpus that `recipes.prepare` has made."""

from keras_attn import text

PREPARED_SPLITS = {"train": "train", "val": "valid"}  # of the recipe, and of the corpus
_PAIRS = 1024  # that are decoded at once


class PreparedPairs:
    """One split of prepared pairs as text: iteration decodes the ids, and yields pairs of str.

    The text is that of the corpus but for what the tokenizer does not keep, such as rare
    characters.

    Args:
        directory: str. It has a `manifest.json`.
        split: str. One of the corpus's splits.

    Raises:
        ValueError: if the corpus has no such split, or texts in place of pairs.
    """

    def __init__(self, directory, split):
        self._directory, self._files = directory, text.TokenFiles(directory, split)
        if not len(self._files.documents):
            raise ValueError(f"The split {split!r} of the corpus in {directory} is empty.")
        if self._files.documents.sides != 2:
            raise ValueError(
                f"The corpus in {directory} holds texts, not pairs; prepare it with --source and "
                "--target, or --target-field."
            )

    def __iter__(self):
        tokenizer = self._files.manifest.load_tokenizer(self._directory)
        documents = self._files.documents
        for start in range(0, len(documents), _PAIRS):
            block = range(start, min(start + _PAIRS, len(documents)))
            sides = zip(*(documents[index] for index in block), strict=True)
            yield from zip(*(tokenizer.decode_as_strings([*side]) for side in sides), strict=True)
