"""Training loops of a user's own on TensorFlow and JAX; torch's is in tests/torch_backend."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from catalogue_models import make, token_ids
from other_backend import needs_jax, run_on

from keras_attn.losses import LabelSmoothedCrossentropy

IDS, TARGETS = token_ids(), token_ids(1)


def test_a_loop_with_a_gradient_tape_trains_as_fit_does():
    first, second = make("models.gpt"), make("models.gpt")
    second.set_weights(first.get_weights())
    loss, optimizer = LabelSmoothedCrossentropy(), keras.optimizers.SGD(0.1)

    for _ in range(2):
        with tf.GradientTape() as tape:
            value = loss(TARGETS, first(IDS, training=True))
        gradients = tape.gradient(value, first.trainable_weights)
        optimizer.apply(gradients, first.trainable_weights)
    second.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
    second.fit(IDS, TARGETS, batch_size=len(IDS), epochs=2, verbose=0)
    for mine, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


ON_JAX = """
import json
import jax, keras, numpy as np
from keras_attn import models
from keras_attn.losses import LabelSmoothedCrossentropy

sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 11, "dropout": 0.0}
first, second = (models.gpt(11, **sizes, max_length=16) for _ in range(2))
second.set_weights(first.get_weights())
ids, targets = np.random.default_rng(0).integers(4, 11, (2, 3, 7))
loss, optimizer = LabelSmoothedCrossentropy(), keras.optimizers.SGD(0.1)
optimizer.build(first.trainable_variables)

def loss_of(trainable, fixed, ids, targets):
    logits, fixed = first.stateless_call(trainable, fixed, ids, training=True)
    return loss(targets, logits), fixed

@jax.jit
def step(state, ids, targets):
    trainable, fixed, optimized = state
    (_, fixed), gradients = jax.value_and_grad(loss_of, has_aux=True)(
        trainable, fixed, ids, targets)
    trainable, optimized = optimizer.stateless_apply(optimized, gradients, trainable)
    return trainable, fixed, optimized

variables = first.trainable_variables, first.non_trainable_variables, optimizer.variables
state = [[variable.value for variable in part] for part in variables]
for _ in range(3):
    state = step(state, ids, targets)
second.compile(keras.optimizers.SGD(0.1), loss)
second.fit(ids, targets, batch_size=3, epochs=3, verbose=0)
pairs = zip(state[0], second.trainable_variables, strict=True)
print(json.dumps([float(abs(np.array(mine) - np.array(other)).max()) for mine, other in pairs]))
"""


@needs_jax
@pytest.mark.slow
def test_a_stateless_loop_on_jax_trains_as_fit_does():
    differences = run_on("jax", ON_JAX)
    assert len(differences) == 20 and max(differences) < 1e-6
