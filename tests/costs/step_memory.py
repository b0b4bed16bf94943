"""Print the activations of training steps that `explain` predicts, and what TensorFlow allocates.

One thread starts the operations: several start them in another order each time, and on a busy
machine in one that holds more.
"""

import json

import keras
import tensorflow as tf

import keras_attn
from keras_attn import depth, layers, models
from keras_attn.losses import LabelSmoothedCrossentropy

SIZES = {"num_layers": 3, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 192}


def language_model(make_depth):
    def block(index):
        attention = layers.MultiHeadAttention(2, 32, pattern="causal")
        return layers.TransformerBlock(attention, layers.FeedForward(192), residual="pre_norm")

    return models.CausalLanguageModel(layers.TokenEmbedding(31, 64), make_depth(block))


CASES = {
    "remat": lambda: language_model(lambda b: depth.Stack(b, 5, remat=True)),
    "reversible": lambda: language_model(lambda b: depth.Reversible(b, 5)),
    "memory": lambda: models.transformer_xl(31, memory_length=509, **SIZES, dropout=0.0),
}


def measured(model, length, batch):
    """Return the most bytes of tensors in a later step of a graph, and what is kept after one."""
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    state = {} if model.memory is None else model.initial_memory(batch)
    ids = dict.fromkeys(model.input, tf.ones((batch, length), "int32"))
    ids = {name: x for name, x in ids.items() if not model.get_layer(name).optional}

    @tf.function(autograph=False)
    def step(inputs):
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            logits = logits["logits"] if isinstance(logits, dict) else logits
            loss = LabelSmoothedCrossentropy(0.0)(tf.ones((batch, length), "int32"), logits)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, [w.value for w in weights]), weights))

    before = used()["current"]
    step({**ids, **state})
    kept = used()["current"] - before
    tf.config.experimental.reset_memory_stats("CPU:0")
    step({**ids, **state})
    return used()["peak"] - before, kept


def used():
    return tf.config.experimental.get_memory_info("CPU:0")


tf.config.threading.set_inter_op_parallelism_threads(1)
result = {}
for name, make_model in CASES.items():
    model, length, batch = make_model(), 509, 7
    predicted = keras_attn.explain(model, length, batch).memory
    activations = predicted.training - predicted.weights - predicted.optimizer
    result[name] = [activations, *measured(model, length, batch)]
print(json.dumps(result))
