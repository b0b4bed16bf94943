"""The options that make a run what it is; the rest may change from one start to the next."""

NAMES = (
    *("tokenizer", "vocabulary_size", "model", "num_layers", "num_heads", "hidden_dim"),
    *("intermediate_dim", "dropout", "context", "memory", "auxiliary_losses", "precision"),
    *("full_attention", "more"),
    *("batch_size", "steps", "epochs", "learning_rate", "warmup_steps", "clip_norm", "seed"),
)


def settings(options):
    """The options of `NAMES`, and what is learned."""
    text = options.data_dir or options.text or "Python's standard library"
    return {"text": text, **{name: getattr(options, name) for name in NAMES}}
