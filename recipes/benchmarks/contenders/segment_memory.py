"""Scoring each token of a text: with a memory, or from the whole context for each token."""

from ..workload import Task

SIZES = {"num_layers": 6, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
VOCABULARY_SIZE = 256


def with_memory(context, segment):
    """`transformer_xl` on a segment, after a memory of `context` tokens; all tokens are scored."""
    import numpy as np
    import tensorflow as tf

    import keras_attn

    model = keras_attn.models.transformer_xl(VOCABULARY_SIZE, **SIZES, memory_length=context)
    memory = np.random.default_rng(0).standard_normal(
        (1, SIZES["num_layers"], context, SIZES["hidden_dim"]), dtype="float32"
    )
    inputs = {
        "token_ids": _ids(1, segment),
        "memory": tf.constant(memory),
        "memory_length": tf.constant([context]),
    }
    step = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    return Task(call=lambda: step(inputs)["logits"].numpy(), units=segment)


def re_reading(context, windows):
    """`gpt` on so many windows, each moved by one token; the last token of each is scored."""
    import keras
    import tensorflow as tf

    import keras_attn

    model = keras_attn.models.gpt(VOCABULARY_SIZE, **SIZES, max_length=context)
    ids = {"token_ids": _ids(windows, context)}
    last = keras.Model(model.input, model.embedding.logits(model.depth.output[:, -1:]))
    step = tf.function(lambda ids: last(ids, training=False), autograph=False)
    return Task(call=lambda: step(ids).numpy(), units=windows)


def _ids(batch, length):
    import numpy as np
    import tensorflow as tf

    generator = np.random.default_rng(0)
    return tf.constant(generator.integers(1, VOCABULARY_SIZE, (batch, length)), "int32")
