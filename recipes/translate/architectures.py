"""Models by name: those of `keras_attn.models`, and the LSTM from before them."""

from keras_attn.models.paper_sizes import PRESETS

from ..common.model_arguments import build_model
from .lstm import LSTMTranslator


def build(options, vocabulary_size):
    """Build the model `options.model`, in the sizes of `options.preset` unless it is an LSTM.

    Raises:
        ValueError: if `--with` does not fit the model.
    """
    builder, sizes = LSTMTranslator, {}
    if options.preset is not None:
        builder, sizes = PRESETS[options.preset]
    chosen = {"num_layers": options.num_layers, "dropout": options.dropout}
    chosen["residual"] = options.residual if options.has_residual else None
    arguments = {name: value for name, value in chosen.items() if value is not None}
    arguments = {**sizes, **arguments, "vocabulary_size": vocabulary_size}
    return build_model(builder, arguments, options.more)
