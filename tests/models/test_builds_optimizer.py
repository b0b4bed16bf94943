"""Training of built models: a step is traced once, and what Keras trains wrongly is refused."""

import keras
import numpy as np
import pytest
from marks import slow, slow_but

from keras_attn.fit_checks import explain_loss_scale
from keras_attn.losses import AuxiliaryLosses, Distillation
from keras_attn.memory import StatefulSegments
from keras_attn.models import gpt, transformer_xl
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


def segment_model():
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    return transformer_xl(CLASSES, **sizes, memory_length=3)


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


TRAINED = {
    "model": language_model,
    "auxiliary_losses": lambda: AuxiliaryLosses(language_model(), total_steps=5),
    "distillation": lambda: Distillation(language_model(), teacher=language_model()),
    "segments": lambda: StatefulSegments(segment_model(), batch_size=7),
}


@pytest.mark.parametrize("kind", slow_but(["model"], TRAINED))
def test_class_weights_are_refused_where_labels_are_positions(kind):
    model = TRAINED[kind]()
    model.compile("sgd", "mse")
    for fit in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match="`class_weight` must be None for a model with labels"):
            fit(*TOKENS, class_weight={1: 3.0})
    before_it = [None, 1, 0, None, 0.0, None, False]  # among the arguments of `fit`
    with pytest.raises(ValueError, match=r"Received: class_weight=\{1: 3.0\}"):
        model.fit(*TOKENS, *before_it, {1: 3.0})


@pytest.mark.slow
def test_class_weights_of_rows_are_those_of_keras():
    ours, vectors = Linear(), (np.eye(5, 3, dtype="float32"), np.arange(5))
    theirs = keras.Sequential([keras.Input((3,)), keras.layers.Dense(CLASSES)])
    theirs.set_weights(ours.get_weights())
    for model in (ours, theirs):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, run_eagerly=True)
        model.train_on_batch(*vectors, class_weight={1: 3.0, 2: 0.0})
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_a_scaled_loss_of_an_embedding_is_refused_on_tensorflow():
    model, linear = language_model(), Linear()
    for trained in (model, linear):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.compile(keras.optimizers.SGD(loss_scale_factor=8.0), loss, run_eagerly=True)
    with pytest.raises(
        ValueError, match="`loss_scale_factor` must be None .* Received: loss_scale"
    ):
        model.train_on_batch(*TOKENS)
    linear.train_on_batch(*VECTORS)
    with pytest.raises(TypeError, match="another"):
        with explain_loss_scale(model.optimizer):
            raise TypeError("another")
