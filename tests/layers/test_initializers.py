"""An initializer object shared by layers, as the models share one, draws new numbers for each."""

import inspect

import keras
import numpy as np
import pytest
from catalogue_models import BLOCKS, MODELS, make
from marks import slow_but
from other_backend import needs_jax, run_on

from keras_attn.layers import FeedForward, MultiHeadAttention, SegmentEmbedding, TokenEmbedding
from keras_attn.positions import Learned

D = 6
LAYERS = {
    "attention": lambda normal: MultiHeadAttention(2, 3, kernel_initializer=normal),
    "each": lambda normal: MultiHeadAttention(
        2, 3, query_initializer=normal, key_initializer=normal, value_initializer=normal
    ),
    "feed_forward": lambda normal: FeedForward(D, kernel_initializer=normal),
    "segment": lambda normal: SegmentEmbedding(3, embeddings_initializer=normal),
    "tokens": lambda normal: TokenEmbedding(7, D, embeddings_initializer=normal),
    "learned": lambda normal: Learned(7, embeddings_initializer=normal),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_drawn_apart(make):
    normal = keras.initializers.RandomNormal()
    weights = []
    for layer in (make(normal), make(normal)):
        layer.build((None, None, D))
        weights += [w.numpy().ravel() for w in layer.weights if np.ptp(w.numpy()) > 0]
    assert len(weights) >= 2
    for i, first in enumerate(weights):
        for second in weights[:i]:
            assert np.any(first[: len(second)] != second[: len(first)])


def test_one_seed_draws_the_same():
    normal = keras.initializers.RandomNormal(seed=3)
    layer = MultiHeadAttention(2, 3, query_initializer=normal, key_initializer=normal)
    layer = MultiHeadAttention.from_config(layer.get_config())
    layer.build((None, None, D))
    np.testing.assert_array_equal(layer.query_kernel, layer.key_kernel)
    assert np.ptp(layer.key_kernel - layer.value_kernel) > 0


@pytest.mark.parametrize("name", slow_but(["feed_forward.MixtureOfExperts"], [*BLOCKS, *MODELS]))
def test_no_initializer_is_a_function(monkeypatch, name):
    """Keras compiles `initializer.__call__` for large weights under a distribution on JAX, which
    fails for a function."""
    initializers, add_weight = [], keras.layers.Layer.add_weight

    def recorded(layer, shape=None, initializer=None, *arguments, **options):
        initializers.append(initializer)
        return add_weight(layer, shape, initializer, *arguments, **options)

    monkeypatch.setattr(keras.layers.Layer, "add_weight", recorded)
    make(name)
    assert initializers and not [f for f in initializers if inspect.isroutine(f)]


SHARDED = """
import json
import keras
import numpy as np
from keras.src.backend.jax import core
from keras_attn import feed_forward, layers, scores

VALUES = {
    "attention": (lambda: layers.MultiHeadAttention(3, 5), (None, None, 7)),
    "favor": (lambda: scores.FAVOR(11, seed=1), (None, 3, None, 5)),
    "experts": (
        lambda: feed_forward.MixtureOfExperts(layers.FeedForward(11), 3, 2), (None, None, 7)
    ),
}

def weights(value, distribution):
    make, shape = VALUES[value]
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(2)
    layer = make()
    layer.build(shape)
    return [np.asarray(weight) for weight in layer.weights]

alone = {value: weights(value, None) for value in VALUES}
counted = []
core.should_shard_at_init = lambda layout, shape: counted.append(shape) is None
two = keras.distribution.DataParallel(auto_shard_dataset=False)
furthest = {
    value: max(float(abs(a - b).max()) for a, b in zip(weights(value, two), alone[value]))
    for value in VALUES
}
print(json.dumps([furthest, len(counted) == sum(map(len, alone.values()))]))
"""


@pytest.mark.slow
@needs_jax
def test_compiled_initializers_draw_the_same_numbers(monkeypatch):
    """Keras compiles them from 250 MiB on all devices together; here, each."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    furthest, all_compiled = run_on("jax", SHARDED)
    assert all_compiled and max(furthest.values()) < 1e-6, furthest
    assert furthest["attention"] == 0
