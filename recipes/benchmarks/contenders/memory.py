"""Whole training steps of a model, for the peak memory of the process."""

from ...common.machine import resident_memory
from ..workload import Task

VOCABULARY_SIZE = 256
SIZES = {"num_layers": 4, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}


def build(kind, policy="float32", **options):
    """Return a model: `transformer`, `transformer_xl`, or a language model with a kind of depth.

    The kinds are "stack", "remat" and "reversible"; `window` makes the attention local.
    """
    import keras

    from keras_attn import models

    keras.config.set_dtype_policy(policy)
    if kind in ("transformer", "transformer_xl"):
        return getattr(models, kind)(VOCABULARY_SIZE, **SIZES, dropout=0.0, **options)
    return _language_model(kind, **options)


def _language_model(kind, window=None, implementation="auto", num_layers=SIZES["num_layers"]):
    from keras_attn import depth, layers, models, patterns

    width, heads = SIZES["hidden_dim"], SIZES["num_heads"]
    pattern = "causal" if window is None else patterns.Local(window)

    def block(index):
        how = {"pattern": pattern, "position": "rotary", "implementation": implementation}
        attention = layers.MultiHeadAttention(heads, width // heads, **how)
        feed_forward = layers.FeedForward(SIZES["intermediate_dim"])
        return layers.TransformerBlock(attention, feed_forward, residual="pre_norm")

    if kind == "reversible":
        stack = depth.Reversible(block, num_layers)
    else:
        stack = depth.Stack(block, num_layers, remat=kind == "remat")
    return models.CausalLanguageModel(layers.TokenEmbedding(VOCABULARY_SIZE, width), stack)


def training_step(kind, length, batch, **options):
    """A step of Adam on a crossentropy.

    Its facts are `base_mb`, the memory of the process before the model, and `tensors_mb`, the most
    that TensorFlow's allocator has given out for tensors, weights included.
    """
    import keras
    from tensorflow import config

    _step(keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)]), {}, (2, 3))()
    base = resident_memory()
    model = build(kind, **options)
    state = {} if model.memory is None else model.initial_memory(batch)
    step, facts = _step(model, state, (batch, length)), {"base_mb": base}

    def call():
        loss = step()
        facts["tensors_mb"] = config.experimental.get_memory_info("CPU:0")["peak"] / 1e6
        return loss

    return Task(call, batch * length, facts)


def _step(model, state, shape):
    import keras
    import numpy as np
    import tensorflow as tf

    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    ids = np.random.default_rng(0).integers(1, 5, shape).astype("int32")
    inputs = tf.constant(ids)
    if not isinstance(model, keras.Sequential):
        names = [name for name in model.input if name not in state]
        inputs = {**dict.fromkeys(names, inputs), **state}

    @tf.function(autograph=False)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            logits = logits["logits"] if isinstance(logits, dict) else logits
            labels = labels[..., 0] if len(logits.shape) == 2 else labels
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [w.value for w in model.trainable_variables])
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return lambda: float(step(inputs, tf.constant(ids)))
