"""TensorFlow traces a training step once if the optimizer is built before it."""

import keras
import numpy as np
import pytest
from marks import slow

from keras_attn.losses import AuxiliaryLosses
from keras_attn.models import gpt
from keras_attn.registry import BuildsOptimizer

CLASSES = 12  # tokens, or classes of a dense layer


class Linear(BuildsOptimizer, keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(CLASSES)
        self.dense.build((None, 3))

    def call(self, x):
        return self.dense(x)


def language_model():
    return gpt(CLASSES, num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4, max_length=5)


VECTORS = np.ones((7, 3)), np.ones((7,))
TOKENS = {"token_ids": np.ones((7, 5), "int32")}, np.ones((7, 5), "int32")


@pytest.mark.parametrize(
    "make, data",
    [(Linear, VECTORS), slow(*(lambda: AuxiliaryLosses(language_model(), total_steps=5), TOKENS))],
    ids=["mixin", "auxiliary_losses"],
)
def test_the_first_step_is_traced_once(make, data):
    model, traces = make(), []

    def loss(labels, logits):
        traces.append(1)
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    model.compile("adam", loss, jit_compile=False)
    before = model.trainable_variables[0].numpy()
    model.fit(*data, batch_size=7, epochs=2, verbose=0)
    assert len(traces) == 1
    assert model.optimizer.iterations == 2 and not np.allclose(model.trainable_variables[0], before)


@pytest.mark.slow
def test_an_optimizer_is_built_once():
    """That of loss scaling makes its variables anew each time it is built."""
    model = Linear()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.9))
    model.compile(optimizer, "mse", auto_scale_loss=False)
    optimizer.build(model.trainable_variables)
    variables = [id(variable) for variable in optimizer.variables]
    model.make_train_function()
    assert [id(variable) for variable in optimizer.variables] == variables
