"""The options that make a run what it is; the rest may change from one start to the next."""

NAMES = (
    *("source", "target", "variant", "tokenizer", "vocabulary_size", "max_source_length"),
    *("preset", "num_layers", "residual", "dropout", "precision"),
    *("tokens_per_batch", "learning_rate", "warmup_steps", "label_smoothing", "clip_norm", "seed"),
)


def settings(options):
    """The options of `NAMES`, and what is translated."""
    chosen = {name: getattr(options, name) for name in NAMES}
    return {"task": "parallel text" if options.data_dir else "dates", **chosen}
