"""A small language model trained with auxiliary losses, and its losses and gradients."""

import keras
import numpy as np
import oracles
import tensorflow as tf

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.losses import AuxiliaryLosses, LabelSmoothedCrossentropy
from keras_attn.models import CausalLanguageModel

B, T, V, D, LAYERS = 3, 7, 13, 6, 3
RANDOM = np.random.default_rng(0)
TEXT = RANDOM.integers(1, V, (B, T + 1))
X, Y = {"token_ids": TEXT[:, :-1]}, TEXT[:, 1:].copy()
Y[1, 4:] = 0  # padding


def language_model(num_layers=LAYERS, residual="post_norm", dropout=0.0, make=Stack, **stack):
    def block(index):
        attention = MultiHeadAttention(2, 3, pattern="causal")
        return TransformerBlock(attention, FeedForward(5), residual=residual, dropout=dropout)

    return CausalLanguageModel(
        TokenEmbedding(V, D), make(block, num_layers, **stack), position="sinusoidal"
    )


def trained_model(total_steps=60, model=None, **arguments):
    trained = AuxiliaryLosses(model or language_model(), total_steps, **arguments)
    oracles.scramble(trained)
    trained.step.assign(0)
    # Tracing a graph takes longer than these few steps; the docstring's example is one.
    trained.compile(keras.optimizers.SGD(0.1), LabelSmoothedCrossentropy(0.0), run_eagerly=True)
    return trained


def target_block(k):
    """A block of a target, as those of the language model."""
    attention = MultiHeadAttention(2, 3, pattern="causal")
    return TransformerBlock(attention, FeedForward(5), residual="pre_norm")


def total_loss(trained, **arguments):
    """The loss of a training step, after which the step is counted."""
    return trained.compute_loss(X, Y, trained(X, training=True), **arguments)


def of_steps(trained, *steps):
    losses = []
    for step in steps:
        trained.step.assign(step)
        losses.append(float(total_loss(trained)))
    return losses


def plain_loss(trained):
    return float(LabelSmoothedCrossentropy(0.0)(Y, trained.model(X)))


def gradients(trained, step, weights, graph=False):
    trained.step.assign(step)

    def run():
        with tf.GradientTape() as tape:
            loss = total_loss(trained)
        by_weight = tape.gradient(loss, [weight.value for weight in weights])
        return loss, [tf.convert_to_tensor(gradient) for gradient in by_weight]

    loss, by_weight = tf.function(run)() if graph else run()
    return float(loss), [gradient.numpy() for gradient in by_weight]
