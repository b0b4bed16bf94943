"""The two passes over the texts of a part: pure functions of the part and of what is given."""

import contextlib
import os
from typing import NamedTuple

import numpy as np

from keras_attn.text.corpus.manifest import TOKENIZER
from keras_attn.text.corpus.token_writer import TokenWriter

from ..common.files import SPLITS
from . import cleaning, encoding
from . import problems as kinds
from .documents import Documents
from .problems import Problems


class Rules(NamedTuple):
    """Rules of the preparation of a corpus, which every pass needs.

    Args:
        folder: str. The corpus.
        documents: str. As `Documents` takes it.
        fields, strict: the options of these names.
        valid, test: floats. Shares of the splits.
        sample: float. The share of the texts of which a tokenizer is trained.
        out: str. The folder of the shards.
    """

    folder: str
    documents: str
    fields: tuple
    strict: bool
    valid: float
    test: float
    sample: float
    out: str


class Part(NamedTuple):
    """A part of a corpus: its number and its `Source`s."""

    index: int
    sources: list

    @property
    def name(self):
        return f"part-{self.index:05d}"


class FirstPass(NamedTuple):
    """The result of the first pass over a part.

    Args:
        keys: uint8 array (documents, 32), their `cleaning.key_of`.
        sample: list of pairs of str, a place in a random order and a text.
        facts: dict. The documents, the hash of the texts, and the problems.
    """

    keys: np.ndarray
    sample: list
    facts: dict


def first_pass(rules, part):
    """Clean the documents of a part; return their hashes and a sample for a tokenizer."""
    keys, sample = bytearray(), []
    problems = Problems(rules.strict)
    documents = _documents(rules, part, problems)
    for sides in _cleaned(documents, problems):
        key = cleaning.key_of(sides)
        keys += key
        if rules.sample and cleaning.split_of(key, rules.valid, rules.test) == "train":
            sample.extend(cleaning.sample(sides, key, rules.sample))
    keys = np.frombuffer(bytes(keys), "uint8").reshape(-1, cleaning.KEY_BYTES)
    facts = {"read": len(keys), "sha256": documents.sha256, "problems": problems.counts}
    return FirstPass(keys, sample, facts)


def second_pass(rules, part, facts, kept):
    """Tokenise documents of a part, and write a shard of each split that has some.

    Args:
        rules: `Rules`, whose `out` holds the tokenizer.
        part: `Part`.
        facts: dict. That of its `FirstPass`.
        kept: bool array (documents,). False for repeats.

    Returns:
        A dict of split to the name of the shard.

    Raises:
        ValueError: if the texts are not those of the first pass.
    """
    encode, splits = _encoder(rules.out), {}
    documents = _documents(rules, part, Problems())
    with contextlib.ExitStack() as stack:
        number_read = 0
        for sides in _cleaned(documents, Problems()):
            number_read += 1
            if number_read > len(kept) or not kept[number_read - 1]:
                continue
            split = cleaning.split_of(cleaning.key_of(sides), rules.valid, rules.test)
            if split not in splits:
                writer = TokenWriter(rules.out, split, part.index, encode, len(sides))
                splits[split] = stack.enter_context(writer)
            ids, characters = zip(*map(encode, sides), strict=True)
            if len(sides) == 2:  # batches of pairs add the end marks
                ids, characters = [side[:-1] for side in ids], [n - 1 for n in characters]
            splits[split].add(*ids, characters=sum(characters))
        if (number_read, documents.sha256) != (facts["read"], facts["sha256"]):
            files = ", ".join(dict.fromkeys(source.path for source in part.sources))
            raise ValueError(
                "A text changed while it was prepared; prepare the corpus in another --out. "
                f"Received: {files[:200]}."
            )
    return {split: splits[split].name for split in SPLITS if split in splits}


def _documents(rules, part, problems):
    return Documents(rules.folder, part.sources, rules.documents, rules.fields, problems)


def _cleaned(documents, problems):
    for sides in documents:
        sides = cleaning.clean_sides(sides)
        if all(sides):
            yield sides
        else:
            problems.add(kinds.ONE_SIDE if any(sides) else kinds.EMPTY, documents.place)


def _encoder(out):
    path = os.path.join(out, TOKENIZER)
    with open(path, "rb") as file:
        return encoding.Encoder(file.read(), path)
