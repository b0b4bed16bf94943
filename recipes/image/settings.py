"""The options that make a run what it is; the rest may change from one start to the next."""

NAMES = (
    *("dataset", "data_dir", "model", "num_layers", "num_heads", "hidden_dim", "intermediate_dim"),
    *("dropout", "pattern", "block_length", "lookback", "query_shape", "flange", "stride"),
    *("summary", "likelihood", "num_mixtures", "more", "precision"),
    *("batch_size", "steps", "epochs", "learning_rate", "warmup_steps", "clip_norm", "seed"),
)


def settings(options):
    """The options of `NAMES`."""
    return {name: getattr(options, name) for name in NAMES}
