"""`ContrastiveLoss` against loops over pairs, and with the rows of two replicas."""

import functools
import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from other_backend import run_on

from keras_attn.backend import replicas
from keras_attn.losses import ContrastiveLoss, contrastive_loss
from keras_attn.testing import check_layer

B, D = 5, 7
X, Y = oracles.random(B, D), oracles.random(B, D, seed=1)
KINDS = pytest.mark.parametrize("kind", ["softmax", "sigmoid"])


def oracle(kind, x, y, log_scale, bias=0.0):
    """The mean loss, pair by pair."""
    logits = np.empty((len(x), len(y)))
    for i, j in np.ndindex(*logits.shape):
        cosine = x[i] @ y[j] / math.sqrt(x[i] @ x[i]) / math.sqrt(y[j] @ y[j])
        logits[i, j] = math.exp(log_scale) * cosine + bias
    total = 0.0
    for i in range(len(x)):
        if kind == "softmax":
            for others in (logits[i], logits[:, i]):
                total += (math.log(sum(map(math.exp, others))) - others[i]) / 2
        else:
            for j in range(len(x)):
                sign = 1 if i == j else -1
                total += math.log(1 + math.exp(-sign * logits[i, j]))
    return total / len(x), logits


def built(kind, log_scale=0.7, bias=-1.3, **arguments):
    layer = ContrastiveLoss(kind, **arguments)
    layer.build((None, D), (None, D))
    layer.set_weights([np.float32(x) for x in (log_scale, bias)][: len(layer.weights)])
    return layer


@KINDS
def test_loss_and_logits_equal_an_oracle(kind):
    layer = built(kind)
    expected, logits = oracle(kind, X, Y, 0.7, -1.3 if kind == "sigmoid" else 0.0)
    np.testing.assert_allclose(layer(X, Y), logits, atol=1e-5)
    assert [float(loss) for loss in layer.losses] == [pytest.approx(expected, rel=1e-5)]


def test_scales_begin_as_in_the_papers():
    softmax, sigmoid = (ContrastiveLoss(kind) for kind in ("softmax", "sigmoid"))
    for layer in (softmax, sigmoid):
        layer.build((None, D), (None, D))
    assert softmax.get_weights() == pytest.approx([math.log(1 / 0.07)])
    assert sigmoid.get_weights() == pytest.approx([math.log(10), -10])
    # Equal rows: all are alike, so one of B is the pair.
    softmax(np.ones((B, D)), np.ones((B, D)))
    assert float(softmax.losses[0]) == pytest.approx(math.log(B), rel=1e-6)


def loss_of(layer, x, y):
    layer(x, y)
    return layer.losses[0]


def gradients(layer, x, y, loss_of=loss_of):
    """The loss, and its gradients by the inputs and the weights."""
    x, y = tf.constant(x), tf.constant(y)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        loss = loss_of(layer, x, y)
    return [loss, *tape.gradient(loss, [x, y, *(w.value for w in layer.trainable_weights)])]


def gathered(rows, first, own):
    return next(rows), first


def unit(x):
    return tf.math.l2_normalize(x, axis=-1)


@KINDS
def test_two_replicas_train_as_one(kind, monkeypatch):
    """Of two and three rows; Keras halves the loss of each replica."""
    layer, parts = built(kind), [slice(0, 2), slice(2, B)]
    wanted = gradients(layer, X, Y)

    def mean_loss(layer, x, y):
        losses = []
        for part in parts:
            # The rows of all replicas, in the order in which the layer asks for them.
            rows = iter([unit(y), tf.exp(layer.log_scale.value) * unit(x)])
            gather = functools.partial(gathered, rows, part.start)
            monkeypatch.setattr(contrastive_loss, "replica_gather", gather)
            layer(x[part], y[part])
            losses.append(layer.losses[0] / 2)
        return tf.add_n(losses)

    monkeypatch.setattr(replicas, "num_replicas", lambda: 2)
    monkeypatch.setattr(replicas, "share_of_sum", lambda own: own)
    monkeypatch.setattr(replicas, "replica_sum", lambda count: tf.constant(float(B)))
    replica_results = gradients(layer, X, Y, mean_loss)
    for one, other in zip(replica_results, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    # With negatives of its own rows only, the mean of the replicas is another loss.
    bias = -1.3 if kind == "sigmoid" else 0.0
    own = sum(oracle(kind, X[p], Y[p], 0.7, bias)[0] * len(X[p]) for p in parts) / B
    assert abs(own - float(replica_results[0])) > 0.1


IN_REPLICAS = """
import json, sys
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
from keras_attn.distribution import strategy
from keras_attn.losses import ContrastiveLoss

def trained(place):
    keras.utils.set_random_seed(0)
    with place.scope():
        x, y = keras.Input((7,)), keras.Input((5,))
        dense = keras.layers.Dense(3), keras.layers.Dense(3)
        model = keras.Model([x, y], ContrastiveLoss()(dense[0](x), dense[1](y)))
        model.compile(keras.optimizers.SGD(0.1))
    random = np.random.default_rng(0)
    data = [random.normal(size=(7, n)).astype("float32") for n in (7, 5)]
    model.fit(data, batch_size=7, epochs=3, shuffle=False, verbose=0)
    return np.concatenate([w.ravel() for w in model.get_weights()])

one, two = (trained(strategy(name)) for name in ("none", "mirrored"))
print(json.dumps([float(np.abs(one - two).max()), float(np.abs(one).max())]))
"""


@pytest.mark.slow
def test_gradients_reach_the_rows_of_other_devices():
    """Seven rows on two devices: four and three. The loss of pairs gathers one side as well."""
    difference, size = run_on("tensorflow", IN_REPLICAS)
    assert difference < 2e-6 < size


def test_the_scale_stays_at_most_100():
    layer = built("softmax", log_scale=4.7)
    assert float(layer.log_scale.constraint(layer.log_scale)) == pytest.approx(math.log(100))
    assert float(layer.log_scale.constraint(tf.constant(3.0))) == 3.0
    layer = built("sigmoid", log_scale=4.7)
    assert float(layer.log_scale.constraint(layer.log_scale)) == pytest.approx(4.7)


@pytest.mark.parametrize(
    "kind, policy", [("softmax", "mixed_bfloat16"), ("sigmoid", "mixed_float16")]
)
def test_losses_are_float32_under_any_policy(kind, policy):
    layer, reference = built(kind, dtype=policy), built(kind)
    logits = layer(X, Y)
    low = keras.ops.cast(keras.ops.cast(X, layer.compute_dtype), "float32")
    low_y = keras.ops.cast(keras.ops.cast(Y, layer.compute_dtype), "float32")
    np.testing.assert_allclose(logits, reference(low, low_y), rtol=1e-6)
    assert logits.dtype == layer.losses[0].dtype == layer.log_scale.dtype == "float32"
    assert float(layer.losses[0]) == pytest.approx(float(reference.losses[0]), rel=1e-6)


@pytest.mark.slow
def test_check_layer():
    checks = ["config", "building", "repeatable", "graph", "saving", "unknown_sizes"]
    check_layer(ContrastiveLoss("sigmoid", 3.0), (B, D), (B, D), only=checks).raise_if_any()
    assert repr(ContrastiveLoss()) == "ContrastiveLoss()"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ContrastiveLoss("margin"), "`kind` must be.*kind='margin'"),
        (lambda: ContrastiveLoss(scale=0), "`scale` must be a number above 0.*scale=0"),
        (lambda: ContrastiveLoss()(X[None], Y[None]), r"`x` must have shape.*\(1, 5, 7\)"),
        (lambda: ContrastiveLoss()(X, Y[:3]), r"`y` must have shape \(5, 7\).*\(3, 7\)"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
