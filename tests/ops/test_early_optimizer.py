"""A training step is traced once if its optimizer has its variables before."""

import keras
import numpy as np
import pytest
from fork_server import ROOT

from keras_attn.losses import Distillation
from keras_attn.ops.early_optimizer import EarlyOptimizer


class Linear(EarlyOptimizer, keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(5)
        self.dense.build((None, 3))

    def call(self, x):
        return self.dense(x)


def dense():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])


@pytest.mark.parametrize("make", [Linear, lambda: Distillation(dense(), dense())])
def test_the_first_step_is_traced_once(make):
    model, traces = make(), []

    def loss(labels, logits):
        traces.append(1)
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    model.compile("adam", loss)
    before = model.trainable_variables[0].numpy()
    model.fit(np.ones((7, 3)), np.ones((7,)), batch_size=7, epochs=2, verbose=0)
    assert len(traces) == 1
    assert model.optimizer.iterations == 2 and not np.allclose(model.trainable_variables[0], before)


def test_an_optimizer_that_has_variables_keeps_them():
    model = Linear()
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    variables = list(model.optimizer.variables)
    model.make_train_function()
    assert list(map(id, model.optimizer.variables)) == list(map(id, variables))


def test_all_models_begin_so():
    """Those of the library and the recipes, except what has it from a base class."""
    found = []
    for tree in ("keras_attn", "recipes"):
        for path in (ROOT / tree).rglob("*.py"):
            lines = path.read_text(encoding="utf-8").splitlines()
            found += [s for s in lines if s.startswith("class ") and "keras.Model)" in s]
    assert len(found) > 3
    assert [line for line in found if "EarlyOptimizer, keras.Model)" not in line] == []
