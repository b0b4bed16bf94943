"""The options that make a run what it is; the rest may change from one start to the next."""

from ..text import tokens
from .parallel_corpus import SPLITS

NAMES = (
    *("source", "target", "variant", "tokenizer", "vocabulary_size", "max_source_length"),
    *("preset", "num_layers", "residual", "dropout", "precision"),
    *("tokens_per_batch", "packing", "learning_rate", "warmup_steps", "label_smoothing"),
    *("clip_norm", "seed"),
)


def settings(options, task):
    """The options of `NAMES`, and what is translated."""
    sentences = (x for split in SPLITS for pair in task.splits[split] for x in pair)
    chosen = {name: getattr(options, name) for name in NAMES}
    return {"task": task.name, "sha256": tokens.digest(*sentences), **chosen}
