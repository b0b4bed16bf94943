"""Parallel text: files of sentences, one a line, and their pairs as token ids."""

import itertools
from typing import NamedTuple

from keras_attn import text

from ..common import files
from ..common.text_reader import parallel_lines
from ..text.corpus import first_lines, train_on_sentences
from ..text.tokens import TokenFolder, save_tokenizer
from .options import TRAINING_SPLITS as SPLITS
from .options import side_names

_PAIRS = 1024  # that are tokenised at once


class ParallelText:
    """One split of a parallel text, in a directory laid out as that of Multi30k.

        SPLIT.LANGUAGE[.gz|.zst]  or, for another variant than raw,  SPLIT.VARIANT.LANGUAGE

    Iteration reads the files, and yields pairs (source sentence, target sentence); a block of them
    is in memory. The files are UTF-8, compressed or not; a compressed one is preferred. U+000A,
    also after U+000D, ends a line: a sentence may contain other characters that some tools take for
    line ends, such as U+2028.

    Args:
        data_dir: str or path.
        split: str, such as "train" or "test_2016_flickr".
        source: str. Language to translate from, such as "en".
        target: str. Language to translate to.
        variant: str. "raw", or for instance "lc.norm.tok".

    Attributes:
        paths: list of the paths of the two files.

    Raises:
        ValueError: if the directory or a file is missing; in iteration, if a file is empty, damaged
            or not UTF-8, or the two sides have different numbers of lines.
    """

    def __init__(self, data_dir, split, source, target, variant="raw"):
        names = side_names(split, source, target, variant)
        self.paths = [files.find(data_dir, name) for name in names]

    def __iter__(self):
        sides = [parallel_lines(path) for path in self.paths]
        for number, pair in enumerate(itertools.zip_longest(*sides)):
            if None in pair:
                rest = [
                    0 if line is None else 1 + sum(1 for _ in side)
                    for line, side in zip(pair, sides, strict=True)
                ]
                raise ValueError(
                    "The two sides of a parallel text must have the same number of lines. "
                    f"Received: {self.paths[0]} with {number + rest[0]} and {self.paths[1]} with "
                    f"{number + rest[1]}"
                )
            yield pair


class ParallelCorpus(NamedTuple):
    """Pairs of sentences as token ids, in files: by split `keras_attn.text.Documents`."""

    ids: dict
    tokens: TokenFolder

    @classmethod
    def load(cls, task, options):
        """Tokenise the pairs of a task, or read tokens: prepared ones, or those of its run.

        Args:
            task: a `Task`.
            options: with `tokenizer`, `vocabulary_size`, `devices` and `out`.
        """

        def make(directory):
            sentences = (sentence for pair in task.splits["train"] for sentence in pair)
            most = None
            if options.tokenizer != "characters":
                most, sentences = options.vocabulary_size, first_lines(sentences)
            tokenizer = train_on_sentences(sentences, options.tokenizer, most)
            save_tokenizer(tokenizer, directory)
            return {
                split: [_write(directory, split, tokenizer, task.splits[split])] for split in SPLITS
            }

        if task.corpus is not None:
            tokens = TokenFolder.prepared(task.corpus, options.out)
            return cls({split: task.splits[split].documents for split in SPLITS}, tokens)
        how = {"tokenizer": options.tokenizer, "vocabulary_size": options.vocabulary_size}
        tokens = TokenFolder.made(options.out, task.hashes, how, make, options.devices)
        return cls({split: tokens.files(split).documents for split in SPLITS}, tokens)


def _write(directory, split, tokenizer, pairs):
    pairs = iter(pairs)
    with text.TokenWriter(directory, split, 0, tokenizer, sides=2) as shard:
        while block := [*itertools.islice(pairs, _PAIRS)]:
            sides = map(tokenizer.encode_as_lists, zip(*block, strict=True))
            for pair, ids in zip(block, zip(*sides, strict=True), strict=True):
                shard.add(*ids, characters=sum(map(len, pair)))
    return shard.name
