"""Translation tasks: the pairs of each split, and their metric."""

from pathlib import Path
from typing import NamedTuple

from keras_attn import callbacks

from .. import files
from .dates import date_pairs
from .parallel_text import SPLITS, read_parallel_text


class Task(NamedTuple):
    """Lists of (source, target) by split (`train`, `val` and tests), and the name of the metric.

    `tokenize` is sacrebleu's tokenizer, for a task scored by BLEU.
    """

    name: str
    splits: dict
    metric: str
    tokenize: str | None = None

    def identity(self):
        """Return the settings that a resumed run must not change."""
        sentences = (x for split in SPLITS for pair in self.splits[split] for x in pair)
        return {"task": self.name, "sha256": files.digest(*sentences)}

    @property
    def tests(self):
        return [split for split in self.splits if split.startswith("test")]

    def score(self, translations, references):
        """Return the metric's value, and the signature that makes it comparable."""
        if self.metric == "exact_match":
            matches = sum(a == b for a, b in zip(translations, references, strict=True))
            return matches / len(references), "share of answers equal to the reference"
        return callbacks.corpus_bleu(translations, references, self.tokenize)


def make_task(options):
    """Return the task of `recipes.translate`'s options: a parallel text in files, or dates."""
    if not options.data_dir:
        return Task("dates", date_pairs(seed=options.seed), "exact_match")
    return parallel_text(options.data_dir, options.source, options.target, options.variant)


def parallel_text(data_dir, source, target, variant):
    """Return a parallel text in files, scored by BLEU; test splits are those named `test*`."""
    ending = f".{source}" if variant == "raw" else f".{variant}.{source}"
    directory = Path(data_dir)
    names = [path.name.removesuffix(".gz") for path in directory.glob("test*")]
    tests = sorted(name.removesuffix(ending) for name in names if name.endswith(ending))
    splits = {
        split: read_parallel_text(data_dir, split, source, target, variant)
        for split in ("train", "val", *(test for test in tests if "." not in test))
    }
    return Task(f"{source}-{target}", splits, "bleu", "none" if "tok" in variant else "13a")
