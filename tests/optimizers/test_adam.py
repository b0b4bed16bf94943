"""The fused Adam against Keras's, and against the paper's formula."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.optimizers import Adam, Noam

ARGUMENTS = {"learning_rate": Noam(16, 3), "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}
START = np.array([[0.5, -1.0, 2.0], [3.0, 0.1, -0.2]], "float32")


def gradients():
    return np.random.default_rng(7).normal(size=(5, *START.shape)).astype("float32")


def updated(optimizer, **compiled):
    variable = keras.Variable(START)

    @tf.function(**compiled)
    def step(gradient):
        optimizer.apply([gradient], [variable])

    optimizer.build([variable])
    for gradient in gradients():
        step(tf.constant(gradient))
    return variable.numpy()


def test_the_formula():
    w, m, v = START.astype("float64"), 0.0, 0.0
    schedule = ARGUMENTS["learning_rate"]
    for t, g in enumerate(gradients().astype("float64"), start=1):
        m = 0.8 * m + 0.2 * g
        v = 0.95 * v + 0.05 * g**2
        rate = float(schedule(t - 1)) * np.sqrt(1 - 0.95**t) / (1 - 0.8**t)
        w = w - rate * m / (np.sqrt(v) + 1e-3)
    np.testing.assert_allclose(updated(Adam(**ARGUMENTS)), w, rtol=1e-5)


@pytest.mark.parametrize(
    "more, jit_compile",
    [({"global_clipnorm": 0.3, "weight_decay": 0.1}, False), slow({}, True)],
)
def test_keras_gives_the_same(more, jit_compile):
    ours = updated(Adam(**ARGUMENTS, **more), jit_compile=jit_compile)
    keras_own = updated(keras.optimizers.Adam(**ARGUMENTS, **more))
    np.testing.assert_allclose(ours, keras_own, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_amsgrad_and_sparse_gradients_take_the_way_of_keras():
    ours = updated(Adam(**ARGUMENTS, amsgrad=True))
    np.testing.assert_allclose(
        ours, updated(keras.optimizers.Adam(**ARGUMENTS, amsgrad=True)), rtol=1e-5, atol=1e-7
    )
    results = []
    for kind in (Adam, keras.optimizers.Adam):
        variable, optimizer = keras.Variable(START), kind(**ARGUMENTS)
        gradient = tf.IndexedSlices(tf.ones((1, 3)), tf.constant([1]), tf.constant([2, 3]))
        optimizer.apply([gradient], [variable])
        results.append(variable.numpy())
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-7)


def test_it_is_one_operation_a_weight():
    variable, optimizer = keras.Variable(START), Adam(**ARGUMENTS)
    optimizer.build([variable])
    graph = tf.function(lambda g: optimizer.apply([g], [variable])).get_concrete_function(
        tf.TensorSpec(START.shape)
    )
    assert [op.type for op in graph.graph.get_operations()].count("ResourceApplyAdam") == 1


def test_config():
    optimizer = Adam(**ARGUMENTS)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(again) is Adam and again.get_config() == optimizer.get_config()


@pytest.mark.slow
def test_mixed_precision_fit(tmp_path):
    layer = keras.layers.Dense(1, kernel_initializer="ones", dtype="mixed_float16")
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile(Adam(0.1), "mse", jit_compile=False)
    model.fit(np.ones((4, 2)), np.zeros(4), epochs=6, verbose=0)
    assert (layer.kernel.numpy() < 0.9).all()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)
