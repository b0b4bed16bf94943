"""Models by name."""

import keras

from keras_attn import models
from keras_attn.depth import ACTRNN, ACTCell


def encoder_decoder(options, vocabulary_size):
    """Build a `universal_transformer` or a `transformer` of as many layers as that has steps."""
    act = {}
    if options.model == "universal_transformer":
        act = {name: getattr(options, name) for name in ("depth", "ponder_loss", "halting_bias")}
    return getattr(models, options.model)(
        vocabulary_size=vocabulary_size,
        **options.sizes(),
        dropout=options.dropout,
        residual=options.residual,
        **act,
    )


def parity_rnn(options):
    """Build Graves' network: one layer of tanh units that reads a vector, and a logit.

    Returns:
        The model, and one that returns the number of steps of each row (B,); None without ACT.
    """
    vectors = keras.Input((None, options.train_length), name="vectors")
    cell, counts = keras.layers.SimpleRNNCell(options.hidden_dim), None
    if options.model == "rnn":
        hidden = keras.layers.RNN(cell, name="rnn")(vectors)
    else:
        act = {"ponder_loss": options.ponder_loss, "halting_bias": options.halting_bias}
        cell = ACTCell(cell, max_steps=options.num_layers, **act)
        hidden, _, counts = ACTRNN(cell, return_state=True, name="rnn")(vectors)
    logits = keras.layers.Dense(1, dtype="float32", name="logits")(hidden)
    steps = None if counts is None else keras.Model(vectors, counts[:, 0])
    return keras.Model(vectors, logits, name=options.model), steps
