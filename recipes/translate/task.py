"""What is translated: the pairs of each split, and how an answer is judged."""

from pathlib import Path
from typing import NamedTuple

from keras_attn import callbacks

from .dates import date_pairs
from .parallel_text import read_parallel_text


class Task(NamedTuple):
    """Lists of (source, target) by split (`train`, `val` and tests), and the name of the metric.

    `tokenize` is sacrebleu's tokenizer, for a task judged by BLEU.
    """

    name: str
    splits: dict
    metric: str
    tokenize: str | None = None

    @property
    def tests(self):
        return [split for split in self.splits if split.startswith("test")]

    def score(self, translations, references):
        """The metric's value, and what makes it comparable."""
        if self.metric == "exact_match":
            matches = sum(a == b for a, b in zip(translations, references, strict=True))
            return matches / len(references), "share of answers equal to the reference"
        return callbacks.corpus_bleu(translations, references, self.tokenize)


def dates(seed):
    """Dates in many languages to ISO 8601, judged by exact match."""
    return Task("dates", date_pairs(seed=seed), "exact_match")


def parallel_text(data_dir, source, target, variant):
    """A parallel text in files, judged by BLEU; tests are the splits whose name says so."""
    ending = f".{source}" if variant == "raw" else f".{variant}.{source}"
    directory = Path(data_dir)
    files = [path.name.removesuffix(".gz") for path in directory.glob("test*")]
    tests = sorted(name.removesuffix(ending) for name in files if name.endswith(ending))
    splits = {
        split: read_parallel_text(data_dir, split, source, target, variant)
        for split in ("train", "val", *(test for test in tests if "." not in test))
    }
    return Task(f"{source}-{target}", splits, "bleu", "none" if "tok" in variant else "13a")
