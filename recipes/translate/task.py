"""Translation tasks: the pairs of each split, and their metric."""

import itertools
from pathlib import Path
from typing import NamedTuple

from keras_attn import callbacks
from keras_attn.text import Manifest
from keras_attn.text.corpus.array_files import hash_of
from keras_attn.text.corpus.manifest import MANIFEST

from ..common import files
from ..common.text_reader import is_blank, line_names
from ..text.text_files import hash_files
from .dates import date_pairs
from .options import is_prepared
from .parallel_text import SPLITS, ParallelText
from .prepared_pairs import PREPARED_SPLITS, PreparedPairs, direction


class Task(NamedTuple):
    """Pairs (source, target) by split (`train`, `val` and tests), and the name of the metric.

    `train` may be a `ParallelText`, which reads its files; the other splits are lists, or
    `PreparedPairs`. `hashes` has the SHA-256 of the texts for training, by name, `tokenize` is
    sacrebleu's tokenizer, for a task scored by BLEU, and `corpus` the directory of prepared pairs,
    of whose two `languages` the first is the source; `is_swapped` is True if the corpus has it as
    the target.
    """

    name: str
    splits: dict
    metric: str
    hashes: dict
    tokenize: str | None = None
    corpus: str | None = None
    languages: tuple = (None, None)
    is_swapped: bool = False

    def identity(self):
        """Return the settings that a resumed run must not change."""
        # Earlier versions trained prepared pairs as they are, whatever languages were asked for.
        swapped = {"is_swapped": True} if self.is_swapped else {}
        return {"task": self.name, "sha256": files.digest_of_hashes(self.hashes), **swapped}

    @property
    def tests(self):
        return [split for split in self.splits if split.startswith("test")]

    def score(self, translations, references):
        """Return the metric's value, and the signature that makes it comparable."""
        if self.metric == "exact_match":
            matches = sum(a == b for a, b in zip(translations, references, strict=True))
            return matches / len(references), "share of answers equal to the reference"
        return callbacks.corpus_bleu(translations, references, self.tokenize)

    def score_by_length(self, sources, translations, references):
        """Return the scores of quarters of the sentences, from the shortest sources to the longest.

        Returns:
            A list of dicts of the `value`, the number of `sentences` and the `max_characters` of
            their sources. One group a sentence if there are fewer than four.
        """
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        ends = [len(order) * quarter // 4 for quarter in range(5)]
        groups = []
        for start, end in itertools.pairwise(ends):
            indices = order[start:end]
            if indices:
                value, _ = self.score(
                    [translations[i] for i in indices], [references[i] for i in indices]
                )
                longest = len(sources[indices[-1]])
                groups.append(
                    {"max_characters": longest, "sentences": len(indices), "value": value}
                )
        return groups


def make_task(options):
    """Return the task of `recipes.translate`'s options: parallel text, prepared pairs, or dates."""
    if not options.data_dir:
        splits = date_pairs(seed=options.seed)
        sentences = (x for split in SPLITS for pair in splits[split] for x in pair)
        return Task("dates", splits, "exact_match", {"dates": files.digest(*sentences)})
    if is_prepared(options.data_dir):
        return prepared_pairs(options.data_dir, options.source, options.target)
    return parallel_text(options.data_dir, options.source, options.target, options.variant)


def prepared_pairs(directory, source=None, target=None):
    """Return the pairs of a corpus that has been prepared, scored by BLEU."""
    languages, is_swapped = direction(directory, source, target)
    splits_read = Manifest.read(directory).splits
    names = {**PREPARED_SPLITS, **({"test": "test"} if splits_read.get("test") else {})}
    splits = {name: PreparedPairs(directory, split, is_swapped) for name, split in names.items()}
    hashes = {MANIFEST: hash_of(Path(directory, MANIFEST))}
    name = Path(directory).resolve().name
    return Task(name, splits, "bleu", hashes, "13a", directory, languages, is_swapped)


def parallel_text(data_dir, source, target, variant):
    """Return a parallel text in files, scored by BLEU; test splits are `test*`, without a dot."""
    ending = f".{source}" if variant == "raw" else f".{variant}.{source}"
    directory = Path(data_dir)
    names = [files.stem(path.name) for path in directory.glob("test*")]
    tests = sorted(name.removesuffix(ending) for name in names if name.endswith(ending))
    tests = [test for test in tests if "." not in test]
    splits_read = {
        split: ParallelText(data_dir, split, source, target, variant) for split in (*SPLITS, *tests)
    }
    paths = [path for split in SPLITS for path in splits_read[split].paths]
    splits = {"train": splits_read["train"]}
    for split in ("val", *tests):
        splits[split] = [*splits_read[split]]
        _check_references(splits[split], splits_read[split].paths[1])
    tokenize = "none" if "tok" in variant else "13a"
    return Task(f"{source}-{target}", splits, "bleu", hash_files(paths, data_dir), tokenize)


def _check_references(pairs, path):
    """Refuse blank references, with which no translation can be compared, before training."""
    blank = [number for number, (_, text) in enumerate(pairs, 1) if is_blank(text)]
    if blank:
        are = "is" if len(blank) == 1 else "are"
        raise ValueError(
            f"{line_names(blank)} of the file {path} {are} empty, and translations are scored by "
            "each line."
        )
