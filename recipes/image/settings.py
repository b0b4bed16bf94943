"""The options that make a run what it is; the rest may change from one start to the next."""

import os

NAMES = (
    *("dataset", "data_dir", "model", "num_layers", "num_heads", "hidden_dim", "intermediate_dim"),
    *("dropout", "pattern", "block_length", "lookback", "query_shape", "flange", "stride"),
    *("summary", "likelihood", "num_mixtures", "more", "precision"),
    *("batch_size", "steps", "epochs", "learning_rate", "warmup_steps", "clip_norm", "seed"),
)


def settings(options):
    """The options of `NAMES`, the directory in one spelling."""
    data_dir = options.data_dir and os.path.realpath(options.data_dir)
    return {**{name: getattr(options, name) for name in NAMES}, "data_dir": data_dir}
