"""Parallel text: files of sentences, one a line, and their pairs as token ids."""

from typing import NamedTuple

from .. import files
from ..text.corpus import train_on_sentences
from ..text.tokens import TokenCache, concatenate_rows, split_rows

# The splits for training; the others are tests, which are only translated.
SPLITS = ("train", "val")


def read_parallel_text(data_dir, split, source, target, variant="raw"):
    """Read one split of a parallel text from a directory laid out as that of Multi30k.

        SPLIT.LANGUAGE[.gz]  or, for another variant than raw,  SPLIT.VARIANT.LANGUAGE[.gz]

    The files are UTF-8, compressed or not; a compressed one is preferred. Only U+000A ends a line:
    a sentence may contain other characters that some tools take for line ends, such as U+2028.

    Args:
        data_dir: str or path.
        split: str, such as "train" or "test_2016_flickr".
        source: str. Language to translate from, such as "en".
        target: str. Language to translate to.
        variant: str. "raw", or for instance "lc.norm.tok".

    Returns:
        list of (source sentence, target sentence).

    Raises:
        ValueError: if the directory or a file is missing, a file is empty, damaged or not UTF-8,
            or the two sides have different numbers of lines.
    """
    stem = split if variant == "raw" else f"{split}.{variant}"
    paths = [files.find(data_dir, f"{stem}.{language}") for language in (source, target)]
    sources, targets = map(_read_lines, paths)
    if len(sources) != len(targets):
        raise ValueError(
            "The two sides of a parallel text must have the same number of lines. "
            f"Received: {paths[0]} with {len(sources)} and {paths[1]} with {len(targets)}"
        )
    return list(zip(sources, targets, strict=True))


class ParallelCorpus(NamedTuple):
    """Pairs of sentences as token ids: by split the sources and the targets."""

    ids: dict
    tokens: TokenCache

    @classmethod
    def load(cls, splits, options):
        """Tokenise the pairs of a task, or read the tokens that its run has kept.

        Args:
            splits: dict of lists of (source, target).
            options: with `tokenizer`, `vocabulary_size`, `devices` and `out`.
        """
        sides = {split: tuple(zip(*splits[split], strict=True)) for split in SPLITS}

        def make():
            sentences = [sentence for pair in splits["train"] for sentence in pair]
            most = None if options.tokenizer == "characters" else options.vocabulary_size
            tokenizer = train_on_sentences(sentences, options.tokenizer, most)
            arrays = {}
            for split in SPLITS:
                for name, side in zip(_array_names(split), sides[split], strict=True):
                    rows = tokenizer.encode_as_lists(side)
                    arrays[name], arrays[f"{name}_ends"] = concatenate_rows(rows)
            return tokenizer, arrays

        sentences = [sentence for pair in sides.values() for side in pair for sentence in side]
        digest = files.digest(options.tokenizer, str(options.vocabulary_size), *sentences)
        tokens = TokenCache(options.out, digest, make, options.devices)
        ids = {
            split: [
                split_rows(tokens.arrays[name], tokens.arrays[f"{name}_ends"])
                for name in _array_names(split)
            ]
            for split in SPLITS
        }
        return cls(ids, tokens)


def _array_names(split):
    return f"{split}_sources", f"{split}_targets"


def _read_lines(path):
    lines = files.read(path).removesuffix(b"\n").split(b"\n")
    return [_decode(line, path, number) for number, line in enumerate(lines, start=1)]


def _decode(line, path, number):
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"Line {number} of the file {path} is not UTF-8: {error}") from error
