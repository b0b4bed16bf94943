"""The options that make a run what it is; the rest may change from one start to the next."""

from ..text.options import settings as text_settings

NAMES = (
    *("tokenizer", "vocabulary_size", "model", "num_layers", "num_heads", "hidden_dim"),
    *("intermediate_dim", "dropout", "context", "memory", "auxiliary_losses", "precision"),
    *("full_attention", "more"),
    *("batch_size", "steps", "epochs", "learning_rate", "warmup_steps", "clip_norm", "seed"),
)


def settings(options, text):
    """The options of `NAMES`, and what is learned."""
    return text_settings(options, NAMES, text)
