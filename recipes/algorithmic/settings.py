"""The options that make a run what it is; the rest may change from one start to the next."""

NAMES = (
    *("task", "model", "depth", "train_length", "test_lengths", "max_offset", "num_layers"),
    *("num_heads", "hidden_dim", "intermediate_dim", "dropout", "residual", "ponder_loss"),
    *("halting_bias", "batch_size", "steps", "epochs", "learning_rate", "warmup_steps"),
    *("clip_norm", "precision", "seed"),
)


def settings(options):
    return {name: getattr(options, name) for name in NAMES}
