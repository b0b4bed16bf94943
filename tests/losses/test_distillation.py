"""`Distillation` against a loop, and what it trains."""

import keras
import numpy as np
import oracles
import pytest
from other_backend import needs_jax, run_on

from keras_attn.losses import Distillation, LabelSmoothedCrossentropy

B, T, D, V = 3, 5, 6, 7
X = oracles.random(B, T, D)
Y = np.random.default_rng(0).integers(1, V, (B, T))
Y[1, 2:] = Y[2, 4:] = 0


def model(seed, classes=V, dropout=0.0):
    layers = [keras.Input((None, D)), keras.layers.Dropout(dropout), keras.layers.Dense(classes)]
    made = keras.Sequential(layers)
    oracles.scramble(made, seed, scale=1.0)
    return made


def wrapped(weight=0.3, temperature=2.5, teacher=None, **arguments):
    teacher = model(1) if teacher is None else teacher
    trained = Distillation(model(0), teacher, temperature, weight, **arguments)
    trained.compile("sgd", LabelSmoothedCrossentropy(0.0), run_eagerly=True)
    return trained


def loss_of(trained, **arguments):
    return float(trained.compute_loss(X, Y, trained(X, training=True), **arguments))


def oracle(trained, weight, temperature, weights=None):
    weights = np.ones((B, T)) if weights is None else weights
    student, teacher = (np.asarray(m(X), "float64") for m in (trained.model, trained.teacher))
    hard = soft = 0.0
    for place in zip(*np.nonzero(Y), strict=True):
        z, v = student[place], teacher[place]
        hard += weights[place] * (np.log(np.exp(z).sum()) - z[Y[place]])
        z, v = (np.exp(x / temperature) for x in (z, v))
        for p, q in zip(v / v.sum(), z / z.sum(), strict=True):
            soft += weights[place] * temperature**2 * p * np.log(p / q)
    return ((1 - weight) * hard + weight * soft) / np.count_nonzero(Y)


@pytest.mark.parametrize("weight, temperature", [(0.3, 2.5), (1.0, 1.0)])
def test_loss_equals_an_oracle(weight, temperature):
    trained = wrapped(weight, temperature)
    assert loss_of(trained) == pytest.approx(oracle(trained, weight, temperature), rel=1e-5)
    weights = np.random.default_rng(1).uniform(0, 2, (B, T)).astype("float32")
    expected = oracle(trained, weight, temperature, weights)
    assert loss_of(trained, sample_weight=weights) == pytest.approx(expected, rel=1e-5)


class Adds(keras.layers.Layer):
    """Adds a loss in every call, as `ACT` does in inference too."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def call(self, x):
        self.add_loss(keras.ops.convert_to_tensor(self.loss))
        return x


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_what_layers_of_the_student_add_counts_whole_and_what_the_teacher_adds_does_not(weight):
    """Also a regularizer, which is no loss of a call."""
    plain = wrapped(weight)
    student, teacher = (
        keras.Model(m.inputs, Adds(loss)(m.outputs[0]))
        for m, loss in ((plain.model, 5.0), (plain.teacher, 70.0))
    )
    plain.model.layers[-1].bias.regularizer = lambda bias: 0.25 + 0 * keras.ops.sum(bias)
    trained = Distillation(student, teacher, plain.temperature, weight)
    trained.compile("sgd", LabelSmoothedCrossentropy(0.0))
    expected = oracle(plain, weight, plain.temperature) + 5.25
    assert loss_of(trained) == pytest.approx(expected, rel=1e-5)


def test_a_teacher_with_the_same_weights_teaches_nothing():
    assert loss_of(wrapped(1.0, teacher=model(0))) == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_the_student_alone_learns_and_reaches_the_teacher():
    """The teacher runs as in inference: without its dropout."""
    teacher = model(1, dropout=0.5)
    trained = wrapped(1.0, 1.0, teacher, ignore_class=None)
    trained.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossentropy(0.0), run_eagerly=True)
    before = [np.copy(w) for w in teacher.get_weights()]
    first, *_ = (float(trained.train_on_batch(X, Y)) for _ in range(60))
    last = loss_of(trained)
    assert last < 0.05 < 0.5 < first
    for weight, start in zip(teacher.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, start)
    assert trained.trainable_weights == trained.model.trainable_weights
    plain = float(LabelSmoothedCrossentropy(0.0)(Y, trained.model(X)))
    assert float(trained.test_on_batch(X, Y)) == pytest.approx(plain, rel=1e-5)
    np.testing.assert_array_equal(trained(X), trained.model(X))


@pytest.mark.slow
def test_a_loaded_run_has_both_models(tmp_path):
    trained = wrapped()
    trained.save(tmp_path / "run.keras")
    again = keras.models.load_model(tmp_path / "run.keras")
    np.testing.assert_allclose(again.teacher(X), trained.teacher(X), atol=1e-6)
    assert loss_of(again) == pytest.approx(loss_of(trained), rel=1e-6)
    assert (again.temperature, again.weight, again.ignore_class) == (2.5, 0.3, 0)


def test_logits_in_low_precision_give_a_loss_of_float32():
    trained = wrapped(1.0)
    logits = type(trained(X, training=True))(
        *(keras.ops.cast(x, "float16") for x in trained(X, training=True))
    )
    loss = trained.compute_loss(X, Y, logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) == pytest.approx(loss_of(trained), rel=2e-2)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: wrapped(weight=1.5), r"`weight` must be in \[0, 1\].*weight=1.5"),
        (
            lambda: wrapped(temperature=0),
            "`temperature` must be .* of at least 1e-06.*temperature=0",
        ),
        (lambda: wrapped(temperature=1e-38), "Received: temperature=1e-38"),
        (lambda: wrapped(teacher=model(1, V + 1)), r"`teacher.output`.*7\).*\(None, None, 8\)"),
        (lambda: wrapped(teacher=keras.layers.Dense(3)), "`teacher` must be a functional model"),
        (lambda: Distillation(*[model(0)] * 2), "`teacher` must be another model"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_hot_labels_are_refused():
    trained = wrapped()
    with pytest.raises(ValueError, match=r"`y_true` must be \(B, T\).*\(3, 5, 7\)"):
        trained.compute_loss(X, np.eye(V)[Y], trained(X, training=True))


ADDED_ON_JAX = """
import json, keras, numpy as np
from keras_attn.losses import Distillation

def loss(added, weight):
    class Adds(keras.layers.Layer):
        def call(self, x):
            self.add_loss(added + 0 * keras.ops.sum(x))
            return x

    def model(*layers):
        dense = keras.layers.Dense(3, kernel_initializer="ones")
        return keras.Sequential([keras.Input((2,)), *layers, dense])

    trained = Distillation(model(Adds()), model(Adds()), weight=weight, ignore_class=None)
    trained.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(True))
    x = np.ones((5, 2), "float32")
    return trained.fit(x, np.zeros(5), verbose=0).history["loss"][0]

print(json.dumps([loss(7.0, weight) - loss(0.0, weight) for weight in (0.0, 0.25, 1.0)]))
"""


@pytest.mark.slow
@needs_jax
def test_added_losses_of_the_student_count_whole_on_jax():
    np.testing.assert_allclose(run_on("jax", ADDED_ON_JAX), 7.0, rtol=1e-5)
