"""KerasHub: its encoder and decoder layers, stacked."""

from ..workload import SHAPES
from .fit import LEARNING_RATE, fit_task


def encoder_decoder(shape, length, dropout):
    """Post-norm encoder-decoder with one tied embedding table, as in Vaswani et al."""
    import keras
    import keras_hub

    embed = keras_hub.layers.TokenAndPositionEmbedding(
        shape.vocabulary_size, length, shape.hidden_dim, mask_zero=True
    )
    size = {"intermediate_dim": shape.intermediate_dim, "num_heads": shape.num_heads}
    size["dropout"] = dropout
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    encoded = keras.layers.Dropout(dropout)(embed(source_ids))
    for _ in range(shape.num_layers):
        encoded = keras_hub.layers.TransformerEncoder(**size)(encoded)
    decoded = keras.layers.Dropout(dropout)(embed(target_ids))
    for _ in range(shape.num_layers):
        decoded = keras_hub.layers.TransformerDecoder(**size)(decoded, encoded)
    logits = embed.token_embedding(decoded, reverse=True)
    return keras.Model({"source_ids": source_ids, "target_ids": target_ids}, logits)


def smoothed_crossentropy(smoothing, vocabulary_size):
    """Keras's own label smoothing; on a CPU the fastest of the ways stock Keras has."""
    import keras

    crossentropy = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    return lambda labels, logits: crossentropy(keras.ops.one_hot(labels, vocabulary_size), logits)


def training(size, batch, length, steps, policy, smoothing, dropout):
    """Optimizer steps under `model.fit`."""
    import keras

    keras.config.set_dtype_policy(policy)
    shape = SHAPES[size]
    model = encoder_decoder(shape, length, dropout)
    loss = smoothed_crossentropy(smoothing, shape.vocabulary_size)
    optimizer = keras.optimizers.Adam(LEARNING_RATE)
    return fit_task(model, optimizer, loss, batch, length, steps, shape.vocabulary_size, policy)
