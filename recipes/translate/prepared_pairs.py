"""Pairs of a corpus that `recipes.prepare` has made."""

from keras_attn import text
from keras_attn.text import Manifest

PREPARED_SPLITS = {"train": "train", "val": "valid"}  # of the recipe, and of the corpus
_PAIRS = 1024  # that are decoded at once


def direction(directory, source, target):
    """Return the languages of prepared pairs as they are asked for, and True to swap the sides.

    They are those of the files of parallel text, or the fields of JSON lines.

    Args:
        directory: str. It has a `manifest.json`.
        source, target: str, or None for any.

    Raises:
        ValueError: if the corpus has no pairs of these languages, or does not name its languages.
    """
    options = Manifest.read(directory).options
    own = options.get("source"), options.get("target")
    if None in own:
        own = options.get("field"), options.get("target_field")
    asked = source, target
    for languages in (own, own[::-1]):
        if all(one in (None, language) for one, language in zip(asked, languages, strict=True)):
            return languages, languages is not own
    received = " ".join(
        f"--{side} {language}"
        for side, language in zip(("source", "target"), asked, strict=True)
        if language is not None
    )
    if None in own:
        raise ValueError(
            f"The corpus in {directory} does not name its languages, so leave out --source and "
            f"--target. Received: {received}."
        )
    raise ValueError(
        f"--source and --target must be {own[0]!r} and {own[1]!r}, in either order, as the corpus "
        f"in {directory} was prepared. Received: {received}."
    )


class PreparedPairs:
    """One split of prepared pairs as text: iteration decodes the ids, and yields pairs of str.

    The text is that of the corpus but for what the tokenizer does not keep, such as rare
    characters.

    Args:
        directory: str. It has a `manifest.json`.
        split: str. One of the corpus's splits.
        is_swapped: bool. True for pairs from the corpus's targets to its sources.

    Raises:
        ValueError: if the corpus has no such split, or texts in place of pairs.
    """

    def __init__(self, directory, split, is_swapped=False):
        self._directory, files = directory, text.TokenFiles(directory, split)
        self._manifest, self.documents = files.manifest, files.documents
        if is_swapped:
            self.documents = self.documents.swapped()
        if not len(self.documents):
            raise ValueError(f"The split {split!r} of the corpus in {directory} is empty.")
        if self.documents.sides != 2:
            raise ValueError(
                f"The corpus in {directory} holds texts, not pairs; prepare it with --source and "
                "--target, or --target-field."
            )

    def __iter__(self):
        tokenizer = self._manifest.load_tokenizer(self._directory)
        for start in range(0, len(self.documents), _PAIRS):
            block = range(start, min(start + _PAIRS, len(self.documents)))
            pairs = [self.documents[index] for index in block]
            sides = zip(*pairs, strict=True)
            yield from zip(*(tokenizer.decode_as_strings([*side]) for side in sides), strict=True)
